// The halves of a training step on NDArrays, and the arrays in which a step keeps what the backward half needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "array_view.h"
#include "direct_runs.h"
#include "fork_safety.h"
#include "spare_arrays.h"

namespace ngraph_mxnet {

// Where an input of a half comes from: a parameter of the block, an argument of the call, an array of the step, or the
// gradient of an output.
struct Source {
  enum Kind { kParameter, kArgument, kStep, kHead };
  Kind kind;
  std::size_t index;
  bool operator==(const Source& other) const { return kind == other.kind && index == other.index; }
};

// How the halves of a step hang together. Parameters and arguments that the backward half reads are the arrays of the
// forward half's call: what they hold when it is their turn.
struct RecordedPlan {
  std::vector<Source> forward, backward;  // of the halves' inputs
  std::size_t outputs;                    // the first results of the forward half, new arrays of each call
  std::vector<std::size_t> kept;          // of the others, which arrays of the step they are
  std::vector<Source> recorded;           // parameters and arguments; the backward half's results are their gradients
};

// Of one block with the same parameters, and arguments of the same types.
class RecordedSteps {
 public:
  using Handle = engine::Handle;

  // `parameters`: handles that the caller keeps as long as it calls `go`; `ones`: for each output what its gradient is where
  // nobody gives one. Throws std::invalid_argument.
  RecordedSteps(std::shared_ptr<CompiledGraph> forward, std::shared_ptr<CompiledGraph> backward, RecordedPlan plan,
                const std::vector<std::uintptr_t>& parameters, const std::vector<std::uintptr_t>& ones);

  // One step more, which is free, with these arrays; false if they are not of the types that the halves want.
  bool add(const std::vector<std::uintptr_t>& arrays);

  // The number of a step that no call needs any more; -1: there is none.
  int take();
  void give_back(int step);

  // Whether the plan records those of the arguments, and no others, that autograd may have recorded.
  bool records_alike(const std::vector<Handle>& arguments) const;

  // Pushes the forward half of a step that was taken: new arrays of the outputs; null: nothing was done, for the arguments
  // are others than expected.
  std::unique_ptr<Arrays> go(int step, const std::vector<Handle>& arguments);

  // Pushes the backward half. `targets`: of all that was recorded. `copied`: whether it reads the copies of what it
  // borrows, which `copies` has told of. Whether it was done.
  bool go_back(int step, const std::vector<Handle>& heads, const std::vector<Handle>& targets, bool copied);

  // What the backward half of a step borrows, parameters and arguments, and the arrays for copies of them. Throws
  // std::runtime_error.
  std::vector<std::pair<Handle, Handle>> copies(int step);

  // Where a gradient of one of `recorded` goes that nobody has an array for. False when MXNet has failed.
  bool add_gradient(Arrays* arrays, std::size_t index) {
    return spares_.add_new(arrays, backward_->outputs().at(index), ArrayView(one(0)).device());
  }

  const CompiledGraph& forward() const { return *forward_; }
  const CompiledGraph& backward() const { return *backward_; }
  const RecordedPlan& plan() const { return plan_; }
  Handle parameter(std::size_t index) const { return parameters_.at(index); }
  Handle one(std::size_t output) const { return ones_.handles().at(output); }

 private:
  // What belongs to one step.
  struct Step {
    std::unique_ptr<Arrays> own;
    std::unique_ptr<Arrays> arguments;  // those that the backward half reads, of the latest call
    std::unique_ptr<Arrays> copies;     // as `borrowed_`
  };

  bool fits(const std::vector<Handle>& arguments) const;
  bool borrow(int step, const std::vector<Handle>& arguments);
  std::vector<Handle> borrowed(const Step& step) const;
  bool run_half(const std::shared_ptr<CompiledGraph>& half, const std::vector<Handle>& in, const std::vector<Handle>& out);

  const std::shared_ptr<CompiledGraph> forward_, backward_;
  const std::shared_ptr<ArrayHolder> holder_;
  const RecordedPlan plan_;
  std::vector<Handle> parameters_;
  Arrays ones_;
  std::vector<Source> borrowed_;      // parameters and arguments that the backward half reads, each once
  Arrays borrowed_parameters_;        // in that order
  SpareArrays spares_;
  ForkSafeMutex mutex_;  // of the rest
  std::vector<Step> steps_;
  std::vector<int> free_;
};

}  // namespace ngraph_mxnet
