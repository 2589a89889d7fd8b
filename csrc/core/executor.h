// Compiled graphs, the one that runs Programs, and what binds a Program to the sizes that calls come with.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/bound_program.h"
#include "core/cached_weights.h"
#include "core/prepared_sets.h"
#include "core/program.h"
#include "core/program_runner.h"
#include "core/tensor_spec.h"

namespace ngraph_mxnet {

// A compiled graph, whatever runs it. Thread safe.
class CompiledGraph {
 public:
  CompiledGraph(std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}
  virtual ~CompiledGraph() = default;

  const std::vector<TensorSpec>& inputs() const { return inputs_; }
  const std::vector<TensorSpec>& outputs() const { return outputs_; }

  // Tensors are dense, row-major and of the types above. `holder`, who may be null, holds the inputs between calls.
  // Never called with the GIL held.
  virtual void run(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs,
                   ArrayHolder* holder) = 0;

  // Before the first run: a number for the graph, not 0, that what was compiled for its other shapes has too. They
  // keep memory for their next runs together.
  virtual void set_graph(std::uint64_t) {}

  // Returns a graph for other shapes of the inputs, made at once. Returns null if those shapes have to be compiled.
  virtual std::shared_ptr<CompiledGraph> for_shapes(const std::vector<std::vector<std::int64_t>>&) const {
    return nullptr;
  }

  // Returns the object that makes the graphs of `for_shapes`, or null if there is none. A caller need ask only one of
  // the graphs that share a maker.
  virtual const void* maker() const { return nullptr; }

  // Returns how many threads a run asks for, as far as is known.
  virtual int threads() const { return 1; }

  // True if any thread may run the graph, with no regard to the GIL.
  virtual bool runs_anywhere() const { return true; }

  // Calls the observer if there is one, else `run`. All calls of the graph come here.
  void observed_run(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs, ArrayHolder* holder) {
    if (observer_) return observer_(this, inputs, outputs, holder);
    run(inputs, outputs, holder);
  }

  // Calls `run`. Before the first run.
  using Observer = std::function<void(CompiledGraph* graph, const std::vector<InputTensor>& inputs,
                                      const std::vector<char*>& outputs, ArrayHolder* holder)>;
  void set_observer(Observer observer) { observer_ = std::move(observer); }

  // Calls `observed_run`, and counts and times the call. All calls by MXNet come here.
  void call(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs, ArrayHolder* holder);

  // How often MXNet called it, and how often any graph.
  std::size_t calls() const { return calls_.load(std::memory_order_relaxed); }
  static std::size_t all_calls() { return all_calls_.load(std::memory_order_relaxed); }

  // How many calls of any graph there were before its last one.
  std::size_t last_call() const { return last_call_.load(std::memory_order_relaxed); }

  // Returns the seconds of the fastest call, infinite before the first.
  double fastest() const { return fastest_.load(std::memory_order_relaxed); }

 private:
  std::vector<TensorSpec> inputs_, outputs_;
  Observer observer_;
  std::atomic<std::size_t> calls_{0};
  std::atomic<std::size_t> last_call_{0};
  std::atomic<double> fastest_{std::numeric_limits<double>::infinity()};
  static std::atomic<std::size_t> all_calls_;
};

std::vector<std::size_t> bytes_of(const std::vector<TensorSpec>& specs);

// How weights are prepared: what Executables for several shapes share. Thread safe.
class Preparation {
 public:
  using Prepared = std::shared_ptr<const AlignedBuffer>;

  // `prepare` may be null. `input_bytes` of an input that is no weight is not looked at. Throws std::invalid_argument
  // when the Program refers to what does not exist, or reads what is no weight.
  Preparation(std::shared_ptr<const BoundProgram> prepare, std::size_t prepared_bytes,
              std::vector<std::size_t> weight_inputs, std::vector<std::size_t> input_bytes, int threads,
              const std::string& name, CachedWeightsOption cached);

  std::size_t bytes() const { return prepared_bytes_; }
  Prepared get(const std::vector<InputTensor>& inputs, ArrayHolder* holder);
  std::size_t runs() const { return runs_.load(); }

  // Null if there is none.
  std::shared_ptr<const BoundProgram> program() const { return runner_ ? runner_->program() : nullptr; }

 private:
  Prepared prepare(const std::vector<InputTensor>& inputs);

  std::size_t prepared_bytes_;
  int threads_;
  std::unique_ptr<ProgramRunner> runner_;
  std::shared_ptr<PreparedSets> sets_;
  std::optional<CachedWeights> cached_;
  std::atomic<std::size_t> runs_{0};
};

class Executable : public CompiledGraph {
 public:
  // Throws std::invalid_argument when the Program refers to what does not exist.
  Executable(std::shared_ptr<const BoundProgram> main, std::shared_ptr<Preparation> preparation,
             std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs, int threads, const std::string& name);

  void run(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs, ArrayHolder* holder) override;
  void set_graph(std::uint64_t graph) override { main_.set_graph(graph); }
  int threads() const override { return main_.threads(); }

  // Runs the instructions one by one; the time that each took.
  std::vector<std::pair<std::string, double>> profile(const std::vector<InputTensor>& inputs,
                                                      const std::vector<char*>& outputs);

  // Runs the graph as `run` does, but one instruction after the other, on this thread. Calls `after` after each
  // instruction, with the instruction's number and the arena's memory.
  using AfterStep = ProgramRunner::AfterStep;
  void run_steps(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs, const AfterStep& after);

  const std::shared_ptr<const BoundProgram>& program() const { return main_program_; }
  std::shared_ptr<const BoundProgram> prepare_program() const { return preparation_->program(); }

  // Its `for_shapes`.
  using ForShapes = std::function<std::shared_ptr<CompiledGraph>(const std::vector<std::vector<std::int64_t>>&)>;
  void set_for_shapes(ForShapes for_shapes, const void* maker) {
    for_shapes_ = std::move(for_shapes);
    maker_ = maker;
  }
  const void* maker() const override { return maker_; }
  std::shared_ptr<CompiledGraph> for_shapes(const std::vector<std::vector<std::int64_t>>& shapes) const override {
    return for_shapes_ ? for_shapes_(shapes) : nullptr;
  }

  // How often this Executable, or one that shares its preparation, prepared weights; another one with the same prepare
  // Program may have done it.
  std::size_t prepare_runs() const { return preparation_->runs(); }

 private:
  std::shared_ptr<const BoundProgram> main_program_;
  std::string name_;
  int threads_;
  ProgramRunner main_;
  std::shared_ptr<Preparation> preparation_;
  ForShapes for_shapes_;
  const void* maker_ = nullptr;
};

class Binder : public std::enable_shared_from_this<Binder> {
 public:
  // `preparation` is what all that is bound shares. One that is `checked` is of a file: it looks at the instructions of
  // what it binds.
  Binder(std::shared_ptr<const Program> program, std::shared_ptr<Preparation> preparation, int threads,
         std::string name, bool checked);

  // Before the first `bind`: the number of the graph, as CompiledGraph::set_graph.
  void set_graph(std::uint64_t graph) { graph_.store(graph); }

  // Returns an Executable that runs inputs of these shapes, or null if a guard or a bound does not hold.
  std::shared_ptr<Executable> bind(const Shapes& shapes) const;

 private:
  std::shared_ptr<const Program> program_;
  std::shared_ptr<Preparation> preparation_;
  int threads_;
  std::string name_;
  bool checked_;
  std::atomic<std::uint64_t> graph_;  // whose bound Programs take their arenas over from each other
};

}  // namespace ngraph_mxnet
