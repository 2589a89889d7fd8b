#include "core/bound_program.h"

#include <stdexcept>

#include "core/content_hash.h"

namespace ngraph_mxnet {
namespace {

[[noreturn]] void bad_operand(const Instruction& instruction, std::size_t position,
                              const std::string& why) {
  throw std::invalid_argument("instruction '" + instruction.name + "', operand " +
                              std::to_string(position) + ": " + why);
}

void check_offset(const Instruction& instruction, std::size_t position, std::size_t size,
                  const char* space) {
  const std::size_t offset = instruction.operands[position].offset;
  // An operand of no elements may stand at the very end.
  if (offset > size) {
    bad_operand(instruction, position,
                "byte offset " + std::to_string(offset) + " is beyond the " + space + " of " +
                    std::to_string(size) + " bytes");
  }
}

void check_index(const Instruction& instruction, std::size_t position, std::size_t count,
                 const char* space) {
  const std::size_t index = instruction.operands[position].index;
  if (index >= count) {
    bad_operand(instruction, position,
                std::string(space) + " " + std::to_string(index) + " does not exist, there are " +
                    std::to_string(count));
  }
}

template <class Visit>
void for_each_operand(const Level& level, Visit visit) {
  for (const Instruction& instruction : level) {
    for (std::size_t i = 0; i < instruction.operands.size(); ++i) visit(instruction, i);
  }
}

}  // namespace

BoundProgram::BoundProgram(std::vector<Level> levels, std::size_t arena_bytes,
                 std::vector<Constant> constants, std::shared_ptr<const void> owner)
    : levels_(std::move(levels)),
      arena_bytes_(arena_bytes),
      constants_(std::move(constants)),
      owner_(std::move(owner)) {
  for (const Level& level : levels_) check(level);
}

void BoundProgram::set_zeroing(Level zeroing) {
  check(zeroing);
  zeroing_ = std::move(zeroing);
}

void BoundProgram::check(const Level& level) const {
  for (const Instruction& instruction : level) {
    if (instruction.kernel == nullptr) {
      throw std::invalid_argument("instruction '" + instruction.name + "' has no kernel");
    }
    if (instruction.tasks < 0) {
      throw std::invalid_argument("instruction '" + instruction.name + "' has " + std::to_string(instruction.tasks) +
                                  " tasks");
    }
  }
  for_each_operand(level, [this](const Instruction& instruction, std::size_t i) {
    const Operand& operand = instruction.operands[i];
    if (operand.space == Space::kArena) {
      check_offset(instruction, i, arena_bytes_, "arena");
    } else if (operand.space == Space::kConstant) {
      check_index(instruction, i, constants_.size(), "constant");
      check_offset(instruction, i, constants_[operand.index].bytes, "constant");
    }
  });
}

std::string signature(const BoundProgram& program) {
  std::string bytes;
  const auto append = [&](const auto* values, std::size_t count) {
    bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
    bytes.append(reinterpret_cast<const char*>(values), count * sizeof(*values));
  };
  const std::size_t arena = program.arena_bytes();
  append(&arena, 1);
  for (const Constant& constant : program.constants()) {
    const Hash128 hash = content_hash128(constant.data, constant.bytes);
    append(&hash, 1);
  }
  for (const Level& level : program.levels()) {
    const std::size_t size = level.size();
    append(&size, 1);
    for (const Instruction& instruction : level) {
      append(&instruction.kernel, 1);
      append(&instruction.tasks, 1);
      append(instruction.ints.data(), instruction.ints.size());
      append(instruction.floats.data(), instruction.floats.size());
      for (const Operand& operand : instruction.operands) {
        const std::size_t parts[] = {static_cast<std::size_t>(operand.space), operand.index, operand.offset};
        append(parts, 3);
      }
    }
  }
  return bytes;
}

void check_operands(const BoundProgram& program, const Surroundings& around) {
  const auto check = [&](const Instruction& instruction, std::size_t i) {
    const Operand& operand = instruction.operands[i];
    switch (operand.space) {
      case Space::kInput:
        check_index(instruction, i, around.input_bytes.size(), "input");
        check_offset(instruction, i, around.input_bytes[operand.index], "input");
        break;
      case Space::kOutput:
        check_index(instruction, i, around.output_bytes.size(), "output");
        check_offset(instruction, i, around.output_bytes[operand.index], "output");
        break;
      case Space::kPrepared:
        if (around.prepared_bytes == 0) bad_operand(instruction, i, "nothing was prepared");
        check_offset(instruction, i, around.prepared_bytes, "prepared buffer");
        break;
      case Space::kArena:
      case Space::kConstant:
        break;  // checked by the Program itself
    }
  };
  for (const Level& level : program.levels()) for_each_operand(level, check);
  if (program.zeroing()) for_each_operand(*program.zeroing(), check);
}

}  // namespace ngraph_mxnet
