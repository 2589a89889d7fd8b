// Recorded calls of Gluon blocks: the forward half of a training step, and a node on autograd's tape.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fork_safety.h"
#include "mxnet/recorded_steps.h"
#include "mxnet/variables.h"

namespace ngraph_mxnet {

class RecordedCalls {
 public:
  using Handle = engine::Handle;

  explicit RecordedCalls(std::shared_ptr<RecordedSteps> steps) : steps_(std::move(steps)) {}

  RecordedSteps& steps() const { return *steps_; }

  // Takes the step that was taken. The outputs, which are the caller's then; none: nothing was done, and the step is given
  // back, for nobody records, the profiler is on or an argument is another than expected; where it is `checked`, also if
  // one is recorded that the plan does not record, or the other way round. Throws std::runtime_error.
  std::vector<Handle> call(int step, const std::vector<Handle>& arguments, bool checked);

 private:
  std::shared_ptr<const Variables> variables();

  const std::shared_ptr<RecordedSteps> steps_;
  ForkSafeMutex mutex_{Rank::kRecordedCalls};  // of the next
  std::shared_ptr<const Variables> variables_;  // of the latest call
};

namespace recorded {

// Returns true if this thread is in training mode, or false if in predict mode. Returns nothing if the thread does not
// record, or MXNet fails.
std::optional<bool> mode();

}  // namespace recorded
}  // namespace ngraph_mxnet
