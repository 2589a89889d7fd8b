// Sizes as expressions of symbols, in code (ir/sizes.py, targets/cpu/program/builder.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace ngraph_mxnet {

// Integer arithmetic that throws `kWhy` where a result does not fit into 64 bits.
template <const char* kWhy>
struct Checked {
  [[noreturn]] static void overflow() { throw std::invalid_argument(kWhy); }

  static std::int64_t add(std::int64_t a, std::int64_t b) {
    std::int64_t result;
    if (__builtin_add_overflow(a, b, &result)) overflow();
    return result;
  }

  static std::int64_t subtract(std::int64_t a, std::int64_t b) {
    std::int64_t result;
    if (__builtin_sub_overflow(a, b, &result)) overflow();
    return result;
  }

  static std::int64_t multiply(std::int64_t a, std::int64_t b) {
    std::int64_t result;
    if (__builtin_mul_overflow(a, b, &result)) overflow();
    return result;
  }

  // Rounded down, as in Python; b is not 0.
  static std::int64_t divide(std::int64_t a, std::int64_t b) {
    if (b == -1) return subtract(0, a);
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  }
};

constexpr std::int64_t kMostSize = std::int64_t{1} << 46;  // no size is larger (MOST in ir/sizes.py)

inline constexpr char kSizeBeyond[] = "a size is beyond all bounds";
using SizeInts = Checked<kSizeBeyond>;

// The number, if it can be how many of something there are; else throws std::invalid_argument.
std::int64_t counted(std::int64_t count);

enum class SizeOp : std::int64_t {
  kNumber, kAdd, kMultiply, kFloorDivide, kModulo, kMin, kMax, kPositive, kZero, kWhere
};

// Step i fills slot `symbols + i` from the slots that it names, which come before it; those of a number hold `a`
// itself.
struct SizeStep {
  SizeOp op;
  std::int64_t a, b, c;
  std::int64_t segment;  // 0: evaluated once; else 1 + the loop in each of whose rounds it is evaluated
};

class SizeCode {
 public:
  SizeCode() = default;

  // Throws std::invalid_argument for a step that names a slot which is not filled before it.
  SizeCode(std::size_t symbols, std::vector<SizeStep> steps);

  std::size_t symbols() const { return symbols_; }
  std::size_t slots() const { return symbols_ + steps_.size(); }

  // How many there are in a segment.
  std::size_t steps(std::int64_t segment) const;

  // Fills the slots of a segment; those of the symbols are filled already. Throws std::invalid_argument where a size is
  // beyond all bounds.
  void evaluate(std::int64_t segment, std::vector<std::int64_t>* slots) const;

 private:
  std::size_t symbols_ = 0;
  std::vector<SizeStep> steps_;
  std::vector<std::vector<std::size_t>> segments_;
};

}  // namespace ngraph_mxnet
