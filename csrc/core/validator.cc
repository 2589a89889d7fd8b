// Check that the instructions of a Program from a file are such as their kernels' records declare, before the Program
// runs.
//
// Each instruction must meet these conditions:
// * Its kernel is one of the kernel library's.
// * It has exactly the kernel's number of operands, and at least the kernel's numbers of ints and floats.
// * Its ints that are sizes are at least 1, and all its ints are within bounds.
// * It has the number of tasks that its ints make.
// * Its operands are aligned.
// * It reads and writes no byte outside an operand's memory. The kernel's record tells which bytes it reads and writes.
// * It does not write to inputs, or to constants (tables of offsets are among them).
// * It does not write where a kernel keeps positions that the kernel relies on while it runs.
#include "core/bound_program.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/aligned_buffer.h"
#include "core/kernel_table.h"
#include "core/sizes.h"

namespace ngraph_mxnet {
namespace {

// Beyond it no number of an instruction can be right (MOST in params/record.py).
constexpr std::int64_t kMost = std::int64_t{1} << 46;
constexpr std::size_t kSlots = 256;

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument(why); }

constexpr char kBeyond[] = "its ints are beyond all bounds";
using Ints = Checked<kBeyond>;

std::int64_t divide(std::int64_t a, std::int64_t b) {
  if (b == 0) refuse("its ints divide by 0");
  return Ints::divide(a, b);
}

struct Extremes {
  std::int64_t least, greatest;
};

// int32 offsets in a constant.
class Table {
 public:
  Table(const char* data, std::int64_t count) : entries_(reinterpret_cast<const std::int32_t*>(data)), count_(count) {}

  std::int64_t count() const { return count_; }

  Extremes extremes(std::int64_t first, std::int64_t count) const {
    if (first < 0 || count < 1 || count > count_ || first > count_ - count) refuse("a table is too small");
    // In lanes, as tables are read at each binding: one after the other takes several times as long.
    constexpr std::int64_t kLanes = 16;
    const std::int32_t* const begin = entries_ + first;
    std::int32_t least[kLanes], greatest[kLanes];
    std::fill_n(least, kLanes, *begin);
    std::fill_n(greatest, kLanes, *begin);
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const std::int32_t entry = begin[i + lane];
        least[lane] = entry < least[lane] ? entry : least[lane];
        greatest[lane] = entry > greatest[lane] ? entry : greatest[lane];
      }
    }
    const auto rest = std::minmax_element(begin + i, begin + count);
    std::int32_t low = *std::min_element(least, least + kLanes), high = *std::max_element(greatest, greatest + kLanes);
    if (i < count) low = std::min(low, *rest.first), high = std::max(high, *rest.second);
    return {low, high};
  }

  // Returns the extremes of the first and the last pixel of each tile. The table gives only the first pixel: the others
  // are a stride apart.
  Extremes of_tiles(std::int64_t rows, std::int64_t row_pixels, std::int64_t row_tiles, std::int64_t stride) const {
    if (rows < 1 || row_tiles < 1 || row_tiles > row_pixels || Ints::multiply(rows, row_pixels) > count_) {
      refuse("a table is too small");
    }
    const std::int64_t tile = row_pixels / row_tiles, larger = row_pixels % row_tiles;
    Extremes found{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < row_tiles; ++i) {
        const std::int64_t start = entries_[row * row_pixels + i * tile + std::min(i, larger)];
        const std::int64_t end = Ints::add(start, Ints::multiply(tile + (i < larger ? 1 : 0) - 1, stride));
        found = {std::min({found.least, start, end}), std::max({found.greatest, start, end})};
      }
    }
    return found;
  }

 private:
  const std::int32_t* entries_;
  std::int64_t count_;
};

// Bytes of the arena that an instruction writes, and whether its kernel relies on them.
struct Written {
  std::int64_t first, last;
  bool kept;
  const Instruction* instruction;
};

bool is_callers(Space space) { return space == Space::kInput || space == Space::kOutput; }

std::string operand_str(std::size_t tensor) { return "operand " + std::to_string(tensor) + ": "; }

class Validator {
 public:
  Validator(const BoundProgram& program, const Surroundings& around) : program_(program), around_(around) {}

  void check() {
    if (program_.arena_bytes() > kMost) refuse("an arena of " + std::to_string(program_.arena_bytes()) + " bytes");
    for (const Level& level : program_.levels()) check_level(level);
    if (program_.zeroing()) check_level(*program_.zeroing());
  }

 private:
  void check_level(const Level& level) {
    written_.clear();
    for (const Instruction& instruction : level) {
      try {
        check_instruction(instruction);
      } catch (const std::invalid_argument& error) {
        refuse("instruction '" + instruction.name + "': " + error.what());
      }
    }
    check_kept();
  }

  void check_instruction(const Instruction& instruction) {
    const FoundKernel found = find_kernel(instruction.name);
    if (found.kernel == nullptr || found.kernel != instruction.kernel) refuse("no such kernel");
    const Check& check = *found.check;
    if (instruction.operands.size() != check.tensors) {
      refuse(std::to_string(instruction.operands.size()) + " operands, the kernel has " +
             std::to_string(check.tensors));
    }
    if (instruction.ints.size() < check.ints || instruction.floats.size() < check.floats) {
      refuse(std::to_string(instruction.ints.size()) + " ints and " + std::to_string(instruction.floats.size()) +
             " floats, the kernel reads " + std::to_string(check.ints) + " and " + std::to_string(check.floats));
    }
    for (std::size_t i = 0; i < instruction.ints.size(); ++i) {
      const std::int64_t number = instruction.ints[i];
      if (number > kMost || number < -kMost || (i < check.sizes && number < 1)) {
        refuse("its int " + std::to_string(i) + " is " + std::to_string(number));
      }
    }
    run(instruction, check);
  }

  void run(const Instruction& instruction, const Check& check) {
    std::copy_n(instruction.ints.begin(), check.ints, slots_);
    std::size_t next = check.ints;
    const std::uint8_t* at = kCheckCode + check.code;
    const auto slot = [&] { return slots_[*at++]; };
    const auto give = [&](std::int64_t value) { slots_[next++] = value; };
    const auto binary = [&](auto function) {
      const std::int64_t left = slot(), right = slot();
      give(function(left, right));
    };
    for (;;) {
      switch (static_cast<Step>(*at++)) {
        case Step::kEnd:
          return;
        case Step::kNumber:
          give(kCheckNumbers[*at++]);
          break;
        case Step::kAdd:
          binary(Ints::add);
          break;
        case Step::kSubtract:
          binary(Ints::subtract);
          break;
        case Step::kMultiply:
          binary(Ints::multiply);
          break;
        case Step::kDivide:
          binary(divide);
          break;
        case Step::kModulo:
          binary([](std::int64_t a, std::int64_t b) { return Ints::subtract(a, Ints::multiply(divide(a, b), b)); });
          break;
        case Step::kAnd:
          binary([](std::int64_t a, std::int64_t b) { return a & b; });
          break;
        case Step::kLess:
          binary([](std::int64_t a, std::int64_t b) { return a < b ? 1 : 0; });
          break;
        case Step::kAtMost:
          binary([](std::int64_t a, std::int64_t b) { return a <= b ? 1 : 0; });
          break;
        case Step::kEqual:
          binary([](std::int64_t a, std::int64_t b) { return a == b ? 1 : 0; });
          break;
        case Step::kTable: {
          const std::size_t tensor = *at++;
          if (slot() > table(instruction, tensor).count()) refuse(operand_str(tensor) + "the table is too small");
          break;
        }
        case Step::kExtremes: {
          const Table entries = table(instruction, *at++);
          const std::int64_t first = slot(), count = slot();
          const Extremes found = entries.extremes(first, count);
          give(found.least);
          give(found.greatest);
          break;
        }
        case Step::kTiles: {
          const Table entries = table(instruction, *at++);
          const std::int64_t rows = slot(), row_pixels = slot(), row_tiles = slot(), stride = slot();
          const Extremes found = entries.of_tiles(rows, row_pixels, row_tiles, stride);
          give(found.least);
          give(found.greatest);
          break;
        }
        case Step::kTasks: {
          const std::int64_t wanted = slot();
          if (instruction.tasks != wanted || wanted > kMost) {
            refuse(std::to_string(instruction.tasks) + " tasks, its ints make " + std::to_string(wanted));
          }
          break;
        }
        case Step::kMore: {
          const std::int64_t ints = slot(), floats = slot();
          if (static_cast<std::int64_t>(instruction.ints.size() - check.ints) < ints ||
              static_cast<std::int64_t>(instruction.floats.size() - check.floats) < floats) {
            refuse("the kernel reads " + std::to_string(ints) + " ints and " + std::to_string(floats) + " floats more");
          }
          break;
        }
        case Step::kAligned:
          check_aligned(instruction, *at++);
          break;
        case Step::kSpan: {
          const std::size_t tensor = *at++;
          const std::int64_t first = slot(), last = slot();
          check_span(instruction, check, tensor, first, last);
          break;
        }
        case Step::kRefuseIf:
          if (slot() != 0) refuse("the kernel takes no such ints");
          break;
        case Step::kRefuseUnless:
          if (slot() == 0) refuse("the kernel takes no such ints");
          break;
        case Step::kSkipUnless: {
          const bool holds = slot() != 0;
          const std::size_t bytes = at[0] + 256 * at[1];
          at += 2 + (holds ? 0 : bytes);
          break;
        }
      }
    }
  }

  void check_span(const Instruction& instruction, const Check& check, std::size_t tensor, std::int64_t first,
                  std::int64_t last) {
    const Operand& operand = instruction.operands[tensor];
    const std::int64_t offset = operand.offset, size = size_of(operand);
    first = Ints::add(first, offset);
    last = Ints::add(last, offset);
    // A kernel's last vector may reach behind memory of our own; that of others ends where it ends.
    if (first < 0 || last > Ints::add(size, is_callers(operand.space) ? 0 : kAlignment)) {
      refuse(operand_str(tensor) + "bytes " + std::to_string(first) + " to " + std::to_string(last) + " of " +
             std::to_string(size));
    }
    if ((check.written >> tensor & 1) == 0) return;
    if (operand.space == Space::kInput || operand.space == Space::kConstant) {
      refuse(operand_str(tensor) + "it is written, but no input or constant may be");
    }
    const bool kept = (check.kept >> tensor & 1) != 0;
    if (operand.space == Space::kArena) {
      written_.push_back({first, last, kept, &instruction});
    } else if (kept) {
      refuse(operand_str(tensor) + "it must be of the arena, which a call has to itself");
    }
  }

  void check_aligned(const Instruction& instruction, std::size_t tensor) const {
    const Operand& operand = instruction.operands[tensor];
    if (operand.offset % kAlignment != 0 || is_callers(operand.space)) {
      refuse(operand_str(tensor) + "offset " + std::to_string(operand.offset) + " is not aligned to " +
             std::to_string(kAlignment));
    }
  }

  // Refuses a level, whose instructions run at once, in which one writes where another keeps positions that it relies
  // on.
  void check_kept() const {
    for (const Written& kept : written_) {
      if (!kept.kept) continue;
      for (const Written& other : written_) {
        if (&other != &kept && other.first < kept.last && kept.first < other.last) {
          refuse("instruction '" + other.instruction->name + "' writes where '" + kept.instruction->name +
                 "' keeps what it relies on");
        }
      }
    }
  }

  Table table(const Instruction& instruction, std::size_t tensor) const {
    const Operand& operand = instruction.operands[tensor];
    if (operand.space != Space::kConstant) refuse(operand_str(tensor) + "a table must be a constant");
    const Constant& memory = program_.constants()[operand.index];
    if (operand.offset % sizeof(std::int32_t) != 0) refuse(operand_str(tensor) + "a table is not aligned");
    return {memory.data + operand.offset,
            static_cast<std::int64_t>((memory.bytes - operand.offset) / sizeof(std::int32_t))};
  }

  std::int64_t size_of(const Operand& operand) const {
    switch (operand.space) {
      case Space::kArena:
        return program_.arena_bytes();
      case Space::kInput:
        return around_.input_bytes[operand.index];
      case Space::kOutput:
        return around_.output_bytes[operand.index];
      case Space::kConstant:
        return program_.constants()[operand.index].bytes;
      case Space::kPrepared:
        return around_.prepared_bytes;
    }
    return 0;
  }

  const BoundProgram& program_;
  const Surroundings& around_;
  std::vector<Written> written_;  // of a level
  std::int64_t slots_[kSlots];
};

}  // namespace

void check_instructions(const BoundProgram& program, const Surroundings& around) {
  check_operands(program, around);
  Validator(program, around).check();
}

}  // namespace ngraph_mxnet
