#include "mxnet/recorded.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "mxnet/array_view.h"
#include "mxnet/direct.h"
#include "mxnet/libmxnet.h"
#include "mxnet/tape.h"

namespace ngraph_mxnet {
namespace {

using engine::Handle;

}  // namespace

std::vector<Handle> RecordedCalls::call(int step, const std::vector<Handle>& arguments, bool checked) {
  std::unique_ptr<Arrays> made;
  std::shared_ptr<const Variables> found;
  try {
    if (!direct::profiles() && recorded::mode() && (!checked || steps_->records_alike(arguments))) {
      found = variables();
      made = steps_->go(step, arguments);
    }
  } catch (...) {
    steps_->give_back(step);
    throw;
  }
  if (made == nullptr) {
    steps_->give_back(step);
    return {};
  }
  const std::vector<Handle> outputs = made->handles();
  tape::record(steps_, step, found, arguments, outputs);
  made->disown();
  return outputs;
}

std::shared_ptr<const Variables> RecordedCalls::variables() {
  std::vector<Handle> parameters;
  for (const Source& source : steps_->plan().recorded) {
    if (source.kind == Source::kParameter) parameters.push_back(steps_->parameter(source.index));
  }
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  const auto same = [](Handle one, Handle other) { return ArrayView(one).node() == ArrayView(other).node(); };
  if (variables_ == nullptr || !variables_->known ||
      !std::equal(parameters.begin(), parameters.end(), variables_->arrays.handles().begin(), same)) {
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < steps_->plan().recorded.size(); ++i) {
      if (steps_->plan().recorded[i].kind == Source::kParameter) specs.push_back(steps_->backward().outputs()[i]);
    }
    variables_ = variables::of(parameters, specs);
  }
  return variables_;
}

std::optional<bool> recorded::mode() {
  bool records = false, trains = false;
  if (mxnet.is_recording(&records) != 0 || !records || mxnet.is_training(&trains) != 0) return std::nullopt;
  return trains;
}

}  // namespace ngraph_mxnet
