#pragma once

#include <cstdint>
#include <stdexcept>

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

}  // namespace ngraph_mxnet
