// A Program as data, whose sizes may be symbols, and what binds it to sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/bound_program.h"
#include "core/sizes.h"
#include "core/tables.h"
#include "core/tensor_spec.h"

namespace ngraph_mxnet {

using Slot = std::size_t;  // of a number, in the code of the sizes

// Operands, instructions, buffers and constants for sizes that are not known yet. Their numbers are slots, so the
// symbols' values decide them.
struct SymbolicOperand {
  Space space;
  std::size_t index;  // which input, output, constant or buffer; of the prepared buffer 0
  Slot offset;
};

struct SymbolicInstruction {
  std::string name;
  Kernel kernel;
  std::vector<SymbolicOperand> operands;
  std::vector<Slot> ints;
  std::vector<double> floats;
  Slot tasks;
  std::vector<std::size_t> waits;    // for these instructions, which come before it
  std::vector<std::size_t> carried;  // of a loop: for these of the round before
  std::int64_t loop = -1;            // in which of the loops it is
  std::int64_t node = 0;
  std::string origin;
  Slot operations, bytes;
};

// The instructions of a loop follow each other; `index` is the symbol that counts its rounds.
struct SymbolicLoop {
  Slot count, index;
};

struct SymbolicBuffer {
  Slot bytes;
  std::int64_t region;   // -1: none
  std::int64_t zeroing;  // which of the zeroing instructions writes the zeros of its halo; -1: none has to
};

// A table that is made for the sizes, or a fixed array.
struct SymbolicConstant {
  const TableKind* table;  // null: fixed
  Constant fixed;
  std::vector<Slot> numbers;
};

struct SymbolicGuard {
  Slot slot;
  std::int64_t value;
};

struct SymbolicSpec {
  std::string element;
  std::vector<Slot> shape;
};

struct SymbolicBounds {
  std::int64_t low, high;
};

// A fixed shape has no symbols. Instructions come after those that they wait for.
struct Program {
  SizeCode sizes;
  std::vector<SymbolicBounds> bounds;  // of the symbols that are no loop's
  std::vector<SymbolicGuard> guards;
  std::vector<SymbolicInstruction> instructions, zeroing;
  std::vector<SymbolicLoop> loops;
  std::vector<SymbolicBuffer> buffers;
  std::vector<SymbolicConstant> constants;
  std::vector<SymbolicSpec> inputs, outputs;
  int branches = 0;  // as NGRAPH_INTER_OP_PARALLELISM
  std::int64_t sharing_gain = 0;
  // Bytes of intermediates in a wave, roughly, of a Program that prepares weights; else 0. Results are made in waves
  // because weights are many: all at once would need as much memory again. Instructions that no result needs are left
  // out.
  std::int64_t wave_bytes = 0;
  std::shared_ptr<const void> owner;  // of fixed constants, and of the kernels' code
};

using Shapes = std::vector<std::vector<std::int64_t>>;

// How a Program is placed, to be told.
struct Plan {
  std::vector<std::int64_t> levels;   // of each instruction, in a loop the first round's; -1: it does nothing
  std::vector<std::int64_t> offsets;  // of each buffer in the arena
  std::vector<std::size_t> zeroed;    // the buffers whose halo each run zeroes, behind the level that first uses it
  std::int64_t arena_bytes = 0;
  std::int64_t peak_bytes = 0;        // alive at one level: no plan can be smaller
  std::int64_t separate_bytes = 0;    // without any sharing
};

// A Program at given sizes.
struct Bound {
  std::shared_ptr<BoundProgram> program;
  std::vector<TensorSpec> inputs, outputs;
};

// Throws std::invalid_argument for what refers to nothing.
void check_program(const Program& program);

// Steps of some nanoseconds each that binding may take: of one's own Program, and of a file's, which may be anything.
constexpr std::size_t kAnySteps = std::size_t{1} << 40, kStepsOfFiles = std::size_t{1} << 25;

// Returns the Program bound to inputs of these shapes; check_program must have let the Program pass. Returns none if a
// bound or a guard does not hold; `broken` gets the guard's place. Throws std::invalid_argument if a size is beyond all
// bounds, or if there is more to do than `most_steps`.
std::optional<Bound> bind_program(const Program& program, const Shapes& shapes, std::size_t most_steps,
                                  std::optional<std::size_t>* broken = nullptr);

// The same, but only the plan, for which the contents of constants do not matter.
std::optional<Plan> plan_program(const Program& program, const Shapes& shapes, std::size_t most_steps);

// The shapes of the inputs of a Program without symbols.
Shapes input_shapes(const Program& program);

}  // namespace ngraph_mxnet
