#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/program.h"

namespace ngraph_mxnet {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument("a Program: " + why); }

}  // namespace

void check_program(const Program& code) {
  const auto slot = [&](Slot each) {
    if (each >= code.sizes.slots()) refuse("slot " + std::to_string(each) + " does not exist");
  };
  const auto below = [](std::int64_t index, std::size_t count, const char* what) {
    if (index < 0 || index >= static_cast<std::int64_t>(count)) refuse(what + (" " + std::to_string(index)) + " does not exist");
  };
  const auto instruction = [&](const SymbolicInstruction& each, std::size_t own) {
    if (each.kernel == nullptr) refuse("instruction '" + each.name + "' has no kernel");
    for (const SymbolicOperand& operand : each.operands) {
      slot(operand.offset);
      if (operand.space == Space::kArena) below(operand.index, code.buffers.size(), "buffer");
      if (operand.space == Space::kConstant) below(operand.index, code.constants.size(), "constant");
      if (operand.space == Space::kInput) below(operand.index, code.inputs.size(), "input");
      if (operand.space == Space::kOutput) below(operand.index, code.outputs.size(), "output");
    }
    for (const Slot number : each.ints) slot(number);
    for (const Slot number : {each.tasks, each.operations, each.bytes}) slot(number);
    for (const std::size_t other : each.waits) below(other, own, "instruction");
    if (each.loop >= 0) below(each.loop, code.loops.size(), "loop");
  };
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    instruction(code.instructions[i], i);
    for (const std::size_t other : code.instructions[i].carried) {
      below(other, code.instructions.size(), "instruction");
      if (code.instructions[i].loop < 0 || code.instructions[other].loop != code.instructions[i].loop) {
        refuse("what is waited for is of another loop");
      }
    }
  }
  std::vector<char> over(code.loops.size(), 0);
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    const std::int64_t loop = code.instructions[i].loop, next = i + 1 < code.instructions.size() ? code.instructions[i + 1].loop : -1;
    if (loop < 0) continue;
    if (over[loop]) refuse("a loop is interrupted");
    over[loop] = next != loop;
  }
  for (const SymbolicInstruction& each : code.zeroing) {
    instruction(each, 0);
    for (const SymbolicOperand& operand : each.operands) {
      if (operand.space != Space::kArena) refuse("what is zeroed is not of the arena");
    }
  }
  for (const SymbolicLoop& loop : code.loops) {
    slot(loop.count);
    if (loop.index < code.bounds.size() || loop.index >= code.sizes.symbols()) refuse("a loop counts with no symbol of its own");
  }
  for (const SymbolicBuffer& buffer : code.buffers) {
    slot(buffer.bytes);
    if (buffer.zeroing >= 0) below(buffer.zeroing, code.zeroing.size(), "zeroing");
  }
  for (const SymbolicConstant& constant : code.constants) {
    if (constant.numbers.size() != (constant.table == nullptr ? 0 : constant.table->numbers)) refuse("a table of " + std::to_string(constant.numbers.size()) + " numbers");
    for (const Slot number : constant.numbers) slot(number);
  }
  for (const SymbolicGuard& guard : code.guards) slot(guard.slot);
  for (const std::vector<SymbolicSpec>* specs : {&code.inputs, &code.outputs}) {
    for (const SymbolicSpec& spec : *specs) {
      for (const Slot size : spec.shape) slot(size);
    }
  }
}

}  // namespace ngraph_mxnet
