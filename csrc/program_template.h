// A Program for a range of sizes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor.h"
#include "program.h"
#include "sizes.h"

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

// A table of a contraction that is made for the sizes (microkernels/tables.py says of which numbers), or a fixed array.
struct TemplateConstant {
  enum class Kind { kFixed, kPixels, kSteps };
  Kind kind;
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

class ProgramTemplate : public std::enable_shared_from_this<ProgramTemplate> {
 public:
  // `preparation` is what all its Programs share. Throws std::invalid_argument for what refers to nothing.
  ProgramTemplate(TemplateCode code, std::shared_ptr<Preparation> preparation, int threads, std::string name);

  // Before the first `bind`: the number of the graph, as CompiledGraph::set_graph.
  void set_graph(std::uint64_t graph) { graph_.store(graph); }

  // What runs inputs of these shapes; null where a guard or a bound does not hold.
  std::shared_ptr<Executable> bind(const std::vector<std::vector<std::int64_t>>& shapes) const;

 private:
  bool unify(const std::vector<std::vector<std::int64_t>>& shapes, std::vector<std::int64_t>* slots) const;
  std::vector<TensorSpec> specs(const std::vector<TemplateSpec>& of, const std::vector<std::int64_t>& slots) const;

  TemplateCode code_;
  std::shared_ptr<Preparation> preparation_;
  int threads_;
  std::string name_;
  std::atomic<std::uint64_t> graph_;  // whose Programs take their arenas over from each other
};

}  // namespace ngraph_mxnet
