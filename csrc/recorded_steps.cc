#include "recorded_steps.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "direct.h"

namespace ngraph_mxnet {

using engine::Device;
using engine::Handle;

RecordedSteps::RecordedSteps(std::shared_ptr<CompiledGraph> forward, std::shared_ptr<CompiledGraph> backward,
                             RecordedPlan plan, const std::vector<std::uintptr_t>& parameters,
                             const std::vector<std::uintptr_t>& ones)
    : forward_(std::move(forward)), backward_(std::move(backward)), holder_(std::make_shared<ArrayHolder>()),
      plan_(std::move(plan)) {
  bool whole = plan_.forward.size() == forward_->inputs().size() && plan_.backward.size() == backward_->inputs().size() &&
               plan_.outputs > 0 && plan_.outputs + plan_.kept.size() == forward_->outputs().size() &&
               plan_.recorded.size() == backward_->outputs().size() && ones.size() == plan_.outputs;
  for (std::uintptr_t array : parameters) parameters_.push_back(reinterpret_cast<Handle>(array));
  for (std::uintptr_t array : ones) whole = whole && ones_.add_same(reinterpret_cast<Handle>(array));
  if (!whole) throw std::invalid_argument("the halves have other inputs and outputs than the plan says");
  // MXNet's own operators run between those of a training step.
  forward_->choose_team();
  backward_->choose_team();
}

bool RecordedSteps::add(const std::vector<std::uintptr_t>& arrays) {
  auto made = std::make_unique<Arrays>();
  for (std::uintptr_t array : arrays) {
    if (!made->add_same(reinterpret_cast<Handle>(array))) return false;
  }
  std::vector<Handle> kept;
  std::vector<TensorSpec> specs(forward_->outputs().begin() + plan_.outputs, forward_->outputs().end());
  for (std::size_t place : plan_.kept) kept.push_back(made->handles().at(place));
  if (!direct::possible() || !direct_runs::all_plain(kept, specs)) return false;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  free_.push_back(static_cast<int>(steps_.size()));
  steps_.push_back(std::move(made));
  return true;
}

int RecordedSteps::take() {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  if (free_.empty()) return -1;
  const int step = free_.back();
  free_.pop_back();
  return step;
}

void RecordedSteps::give_back(int step) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  free_.push_back(step);
}

bool RecordedSteps::fits(const std::vector<Handle>& arguments) const {
  for (std::size_t i = 0; i < plan_.forward.size(); ++i) {
    const Source& source = plan_.forward[i];
    if (source.kind != Source::kArgument) continue;
    if (source.index >= arguments.size()) return false;
    const Handle array = arguments[source.index];
    if (!direct_runs::all_plain({array}, {forward_->inputs()[i]})) return false;
    if (!(ArrayView(array).device() == ArrayView(ones_.handles().front()).device())) return false;
  }
  return true;
}

bool RecordedSteps::records_alike(const std::vector<Handle>& arguments) const {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto same = [&](const Source& source) { return source.kind == Source::kArgument && source.index == i; };
    const bool records = std::any_of(plan_.recorded.begin(), plan_.recorded.end(), same);
    const ArrayView view(arguments[i]);
    if (view.has_gradients() && records != view.may_be_recorded()) return false;
  }
  return true;
}

std::vector<Handle> RecordedSteps::pick(const std::vector<Source>& sources, const std::vector<Handle>& arguments, int step,
                                        const std::vector<Handle>& heads) {
  const std::vector<Handle>& own = arrays_of(step).handles();
  std::vector<Handle> found;
  found.reserve(sources.size());
  for (const Source& source : sources) {
    const std::vector<Handle>& from = source.kind == Source::kParameter  ? parameters_
                                      : source.kind == Source::kArgument ? arguments
                                      : source.kind == Source::kStep     ? own
                                                                         : heads;
    found.push_back(from.at(source.index));
  }
  return found;
}

const Arrays& RecordedSteps::arrays_of(int step) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  return *steps_.at(step);
}

std::unique_ptr<Arrays> RecordedSteps::go(int step, const std::vector<Handle>& arguments) {
  if (!fits(arguments)) return nullptr;
  auto made = std::make_unique<Arrays>();
  const Device device = ArrayView(one(0)).device();
  for (std::size_t i = 0; i < plan_.outputs; ++i) {
    if (!spares_.add_new(made.get(), forward_->outputs()[i], device)) return nullptr;
  }
  std::vector<Handle> outputs = made->handles();
  for (std::size_t place : plan_.kept) outputs.push_back(arrays_of(step).handles()[place]);
  return run_half(forward_, pick(plan_.forward, arguments, step, {}), outputs) ? std::move(made) : nullptr;
}

bool RecordedSteps::go_back(int step, const std::vector<Handle>& heads, const std::vector<Handle>& targets) {
  return run_half(backward_, pick(plan_.backward, {}, step, heads), targets);
}

bool RecordedSteps::run_half(const std::shared_ptr<CompiledGraph>& half, const std::vector<Handle>& in,
                             const std::vector<Handle>& out) {
  if (!direct_runs::all_plain(in, half->inputs()) || !direct_runs::all_plain(out, half->outputs())) return false;
  const std::vector<Handle> read = direct_runs::apart(in, out);
  if ((read.empty() && !in.empty()) || direct_runs::apart(out, {}).size() != out.size()) return false;
  return direct_runs::run(half, holder_, in, out, read, ArrayView(out.front()).device());
}

}  // namespace ngraph_mxnet
