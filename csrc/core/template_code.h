// A Program for a range of sizes as data, and the Programs that it is made into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/program.h"
#include "core/sizes.h"
#include "core/template_tables.h"
#include "core/tensor_spec.h"

namespace ngraph_mxnet {

using Slot = std::size_t;  // of a number, in the code of the sizes

// What a Program will be made of. Numbers are slots, so that they follow from the symbols' values.
struct TemplateOperand {
  Space space;
  std::size_t index;  // which input, output, constant or buffer; of the prepared buffer 0
  Slot offset;
};

struct TemplateInstruction {
  std::string name;
  Kernel kernel;
  std::vector<TemplateOperand> operands;
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
struct TemplateLoop {
  Slot count, index;
};

struct TemplateBuffer {
  Slot bytes;
  std::int64_t region;   // -1: none
  std::int64_t zeroing;  // which of the zeroing instructions writes the zeros of its halo; -1: none has to
};

// A table that is made for the sizes, or a fixed array.
struct TemplateConstant {
  const TableKind* table;  // null: fixed
  Constant fixed;
  std::vector<Slot> numbers;
};

struct TemplateGuard {
  Slot slot;
  std::int64_t value;
};

struct TemplateSpec {
  std::string element;
  std::vector<Slot> shape;
};

struct TemplateBounds {
  std::int64_t low, high;
};

struct TemplateCode {
  SizeCode sizes;
  std::vector<TemplateBounds> bounds;  // of the symbols that are no loop's
  std::vector<TemplateGuard> guards;
  std::vector<TemplateInstruction> instructions, zeroing;
  std::vector<TemplateLoop> loops;
  std::vector<TemplateBuffer> buffers;
  std::vector<TemplateConstant> constants;
  std::vector<TemplateSpec> inputs, outputs;
  int branches = 0;  // as NGRAPH_INTER_OP_PARALLELISM
  std::int64_t sharing_gain = 0;
  std::shared_ptr<const void> owner;
};

using Shapes = std::vector<std::vector<std::int64_t>>;

// A template at given sizes.
struct BoundProgram {
  std::shared_ptr<Program> program;
  std::vector<TensorSpec> inputs, outputs;
};

// Throws std::invalid_argument for what refers to nothing.
void check_template(const TemplateCode& code);

// Steps of some nanoseconds each that binding may take: of one's own template, and of a file's, which may be anything.
constexpr std::size_t kAnySteps = std::size_t{1} << 40, kStepsOfFiles = std::size_t{1} << 25;

// What runs inputs of these shapes, of a template that check_template has let pass; none where a bound does not hold, or
// a guard, whose place `broken` gets. Throws std::invalid_argument where a size is beyond all bounds, or there is more to do
// than `most_steps`.
std::optional<BoundProgram> bind_template(const TemplateCode& code, const Shapes& shapes, std::size_t most_steps,
                                          std::optional<std::size_t>* broken = nullptr);

}  // namespace ngraph_mxnet
