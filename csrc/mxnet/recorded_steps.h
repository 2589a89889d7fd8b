// The halves of a training step on NDArrays, and the arrays in which a step keeps what the backward half needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/fork_safety.h"
#include "core/tensor_spec.h"
#include "mxnet/array_view.h"
#include "mxnet/direct_runs.h"
#include "mxnet/engine.h"

namespace ngraph_mxnet {

// MXNet's CPU storage gives freed memory back to the system, and the pages of a new array of 45 MB take longer to get
// than most kernels take to fill it.
class SpareArrays {
 public:
  // `most`: of all that are kept, in bytes.
  explicit SpareArrays(std::size_t most = std::numeric_limits<std::size_t>::max()) : most_(most) {}

  // Adds an array of this type, whose elements are anything. False when MXNet has failed.
  bool add_new(Arrays* arrays, const TensorSpec& spec, engine::Device device);

  // True if arrays of this type are kept.
  static bool is_large(const TensorSpec& spec) { return spec.bytes() >= kLarge; }

 private:
  static constexpr std::size_t kLarge = std::size_t{1} << 16;  // bytes
  static constexpr std::size_t kMost = 2;                      // of a type: one is often dropped when the next is there

  struct Spare {
    TensorSpec spec;
    engine::Device device;
    std::unique_ptr<Arrays> array;
  };

  const std::size_t most_;
  ForkSafeMutex mutex_{Rank::kSpareArrays};
  std::size_t bytes_ = 0;
  std::deque<Spare> spares_;  // the first kept first
};

// A moving statistic and that of the batch: float32 vectors of one length, in plain arrays.
struct MovingStatistic {
  engine::Handle moving, batch;
  float momentum;
};

// Pushes to MXNet's engine that each becomes moving * momentum + batch * (1 - momentum), as MXNet computes it, one after
// the other: a statistic may move several times. The handles may be freed at once. Whether it was pushed, or there is nothing to do.
bool move_statistics(const std::vector<MovingStatistic>& statistics, engine::Device device);

// Pushes to MXNet's engine that each first array becomes the sum of both. They are plain, of one type and shape, and no
// two share memory. The handles may be freed at once. Throws std::runtime_error.
void add_arrays(const std::vector<std::pair<engine::Handle, engine::Handle>>& sums);

// The origin of an input of a half. It is a parameter of the block, an argument of the call, an array of the step, or
// the gradient of an output.
struct Source {
  enum Kind { kParameter, kArgument, kStep, kHead };
  Kind kind;
  std::size_t index;
  bool operator==(const Source& other) const { return kind == other.kind && index == other.index; }
};

// A moving statistic.
struct Moved {
  Source moving;                  // a parameter or an argument
  std::size_t batch;              // the array of the step that has the batch's
  float momentum;
  std::vector<std::size_t> of;    // places among `recorded`: it moves where a gradient of one of these is asked for
};

// How the halves of a step hang together. Parameters and arguments that the backward half reads are the arrays of the
// forward half's call: what they hold when it is their turn.
struct RecordedPlan {
  std::vector<Source> forward, backward;  // of the halves' inputs
  std::size_t outputs;                    // the first results of the forward half, new arrays of each call
  std::vector<Source> kept;               // of the others, where they are written: arrays of the step, gammas
  std::vector<Source> recorded;           // parameters and arguments; the backward half's results are their gradients
  std::vector<Moved> moved;               // by a backward pass in training mode
};

// The steps of one block with the same parameters, and with arguments of the same types.
class RecordedSteps {
 public:
  using Handle = engine::Handle;

  // `parameters`: handles that the caller keeps as long as it calls `go`; `ones`: for each output what its gradient is
  // where nobody gives one. Throws std::invalid_argument.
  RecordedSteps(std::shared_ptr<CompiledGraph> forward, std::shared_ptr<CompiledGraph> backward, RecordedPlan plan,
                const std::vector<std::uintptr_t>& parameters, const std::vector<std::uintptr_t>& ones);

  // One step more, which is free, with these arrays; false if they are not of the types that the halves want. `marks`:
  // variables whose gradients are the moving statistics, to be added to; as many as are moved.
  bool add(const std::vector<std::uintptr_t>& arrays, const std::vector<std::uintptr_t>& marks);

  // The number of a step that no call needs any more; -1: there is none.
  int take();
  void give_back(int step);

  // True if the plan records exactly those arguments that autograd may have recorded. Arguments whose type has no
  // gradients do not count.
  bool records_alike(const std::vector<Handle>& arguments) const;

  // Pushes the forward half of a step that was taken: new arrays of the outputs; null: nothing was done, for the
  // arguments are others than expected.
  std::unique_ptr<Arrays> go(int step, const std::vector<Handle>& arguments);

  // Pushes the backward half. `targets`: of all that was recorded. `copied`: whether it reads the copies of what it
  // borrows, which `copies` has told of. Whether it was done.
  bool go_back(int step, const std::vector<Handle>& heads, const std::vector<Handle>& targets, bool copied);

  // The same in predict mode, where batch norms take their moving statistics for constants: by a graph that computes
  // forward, too, from what parameters and arguments hold by now. `moving`: the arrays of the statistics, where others
  // than those of the parameters and arguments are to be read. False until `set_predicting`.
  bool go_back_predicting(int step, const std::vector<Handle>& heads, const std::vector<Handle>& targets,
                          const std::vector<Handle>& moving);
  void set_predicting(std::shared_ptr<CompiledGraph> graph, std::vector<Source> inputs);

  // Behind a pass that has asked for these of the gradients of `recorded`: pushes that the statistics move. `targets`:
  // their arrays; none: those of the parameters and arguments themselves. Whether it was done.
  bool move(int step, const std::vector<bool>& asked, const std::vector<Handle>& targets);

  // Variables of the step, as in `add`.
  std::vector<Handle> marks(int step);

  // Returns each parameter and argument that the step's backward half borrows, with the array for its copy. Returns
  // none if the step was given back meanwhile. Throws std::runtime_error if there is no memory for a copy.
  std::vector<std::pair<Handle, Handle>> copies(int step);

  // Adds an array for the gradient of `recorded[index]`, for which nobody has one. Returns false when MXNet has failed.
  bool add_gradient(Arrays* arrays, std::size_t index) {
    return spares_.add_new(arrays, backward_->outputs().at(index), ArrayView(one(0)).device());
  }

  SpareArrays* spares() { return &spares_; }

  const CompiledGraph& forward() const { return *forward_; }
  const CompiledGraph& backward() const { return *backward_; }
  const RecordedPlan& plan() const { return plan_; }
  Handle parameter(std::size_t index) const { return parameters_.at(index); }
  Handle one(std::size_t output) const { return ones_.handles().at(output); }

 private:
  // The arrays of one step.
  struct Step {
    std::unique_ptr<Arrays> own;
    std::unique_ptr<Arrays> arguments;  // those that the backward half reads, of the latest call
    std::unique_ptr<Arrays> copies;     // as `borrowed_`
    std::unique_ptr<Arrays> marks;
    std::unique_ptr<Arrays> all_arguments;  // of the latest call, where statistics are moved
  };

  bool fits(const std::vector<Handle>& arguments) const;
  bool borrow(int step, const std::vector<Handle>& arguments);
  Handle own(const Step& step, const Source& source) const;
  std::vector<Handle> borrowed(const Step& step) const;

  const std::shared_ptr<CompiledGraph> forward_, backward_;
  const std::shared_ptr<ArrayHolder> holder_;
  const RecordedPlan plan_;
  std::vector<Handle> parameters_;
  Arrays ones_;
  std::vector<Source> borrowed_;      // parameters and arguments that the backward half reads, each once
  Arrays borrowed_parameters_;        // in that order
  Arrays own_parameters_;             // all of them, where statistics are moved
  SpareArrays spares_;
  ForkSafeMutex mutex_{Rank::kRecordedSteps};  // of the rest
  std::shared_ptr<CompiledGraph> predicting_;
  std::vector<Source> predicting_inputs_;
  std::vector<Step> steps_;
  std::vector<int> free_;
};

}  // namespace ngraph_mxnet
