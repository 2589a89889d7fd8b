#include "mxnet/recorded_steps.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "mxnet/direct.h"

namespace ngraph_mxnet {

bool SpareArrays::add_new(Arrays* arrays, const TensorSpec& spec, engine::Device device) {
  if (!is_large(spec)) return arrays->add_new(spec, device);
  std::deque<Spare> gone;  // behind the lock
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  std::size_t count = 0;
  for (const Spare& spare : spares_) {
    if (spare.spec.element != spec.element || spare.spec.shape != spec.shape || !(spare.device == device)) continue;
    const engine::Handle array = spare.array->handles().front();
    if (ArrayView(array).is_only()) return arrays->add_same(array);
    ++count;
  }
  if (!arrays->add_new(spec, device)) return false;
  auto kept = std::make_unique<Arrays>();
  if (count >= kMost || spec.bytes() > most_ || !kept->add_same(arrays->handles().back())) return true;
  spares_.push_back({spec, device, std::move(kept)});
  bytes_ += spec.bytes();
  while (bytes_ > most_) {
    bytes_ -= spares_.front().spec.bytes();
    gone.push_back(std::move(spares_.front()));
    spares_.pop_front();
  }
  return true;
}

namespace {

using engine::Handle;

constexpr const char* kName = "ngraph_mxnet";
constexpr std::size_t kFew = std::size_t{1} << 18;  // elements that one thread adds sooner than MXNet begins

// Moves the statistics at once. Call it only where the engine keeps all others out. Returns false if an array has no
// memory.
bool move_now(const std::vector<MovingStatistic>& statistics) {
  for (const MovingStatistic& one : statistics) {
    const ArrayView moving(one.moving);
    moving.unblock();
    auto* const into = reinterpret_cast<float*>(moving.data());
    const auto* const from = reinterpret_cast<const float*>(ArrayView(one.batch).data());
    if (into == nullptr || from == nullptr) return false;
    const float share = 1.0f - one.momentum;
    const std::size_t count = moving.elements();
    for (std::size_t i = 0; i < count; ++i) into[i] = into[i] * one.momentum + from[i] * share;
  }
  return true;
}

}  // namespace

bool move_statistics(const std::vector<MovingStatistic>& statistics, engine::Device device) {
  if (statistics.empty()) return true;
  std::vector<Handle> read, written;
  for (const MovingStatistic& one : statistics) {
    read.push_back(one.batch);
    written.push_back(one.moving);
  }
  written = direct_runs::apart(written, {});
  const auto here = [&](const engine::Completion& completion) {
    if (!move_now(statistics)) return false;
    completion();
    return true;
  };
  switch (engine::run_now(here, read, written, device, kName)) {
    case engine::Outcome::kRan: return true;
    case engine::Outcome::kDeclined: return false;
    case engine::Outcome::kBusy: break;
  }
  const auto kept = std::make_shared<Arrays>();
  auto later = std::make_shared<std::vector<MovingStatistic>>();
  for (const MovingStatistic& one : statistics) {
    if (!kept->add_same(one.moving) || !kept->add_same(one.batch)) return false;
    later->push_back({kept->handles().end()[-2], kept->handles().end()[-1], one.momentum});
  }
  const auto body = [kept, later](const engine::Completion& completion) {
    if (move_now(*later)) {
      completion();
    } else {
      completion.fail(std::runtime_error("a moving statistic has no memory"));
    }
    return true;
  };
  return engine::run_later(body, read, written, device, kName);
}

void add_arrays(const std::vector<std::pair<Handle, Handle>>& sums) {
  std::vector<std::pair<Handle, Handle>> small;
  for (const auto& [target, source] : sums) {
    const ArrayView into(target), from(source);
    if (into.elements() <= kFew && into.is_of(element_by_name("f32")) && from.is_like(into)) {
      small.emplace_back(target, source);
    } else {
      engine::invoke("elemwise_add", {target, source}, target);
    }
  }
  if (small.empty()) return;
  std::vector<Handle> read, written;
  const auto kept = std::make_shared<Arrays>();
  for (const auto& [target, source] : small) {
    read.push_back(source);
    written.push_back(target);
    engine::check(kept->add_same(target) && kept->add_same(source));
  }
  const auto body = [kept](const engine::Completion& completion) {
    for (std::size_t i = 0; i < kept->handles().size(); i += 2) {
      const ArrayView target(kept->handles()[i]), source(kept->handles()[i + 1]);
      target.unblock();
      auto* const into = reinterpret_cast<float*>(target.data());
      const auto* const from = reinterpret_cast<const float*>(source.data());
      if (into == nullptr || from == nullptr) {
        completion.fail(std::runtime_error("a gradient has no memory"));
        return true;
      }
      const std::size_t count = target.elements();  // here, or the loop would count anew behind each store
      for (std::size_t j = 0; j < count; ++j) into[j] += from[j];
    }
    completion();
    return true;
  };
  const engine::Device device = ArrayView(written.front()).device();
  written = direct_runs::apart(written, {});
  if (engine::run_now(body, read, written, device, kName) != engine::Outcome::kRan) {
    engine::check(engine::run_later(body, read, written, device, kName));
  }
}

using engine::Device;
using engine::Handle;

RecordedSteps::RecordedSteps(std::shared_ptr<CompiledGraph> forward, std::shared_ptr<CompiledGraph> backward,
                             RecordedPlan plan, const std::vector<std::uintptr_t>& parameters,
                             const std::vector<std::uintptr_t>& ones)
    : forward_(std::move(forward)), backward_(std::move(backward)), holder_(std::make_shared<ArrayHolder>()),
      plan_(std::move(plan)) {
  bool whole = plan_.forward.size() == forward_->inputs().size() &&
               plan_.backward.size() == backward_->inputs().size() && plan_.outputs > 0 &&
               plan_.outputs + plan_.kept.size() == forward_->outputs().size() &&
               plan_.recorded.size() == backward_->outputs().size() && ones.size() == plan_.outputs;
  for (std::uintptr_t array : parameters) parameters_.push_back(reinterpret_cast<Handle>(array));
  for (std::uintptr_t array : ones) whole = whole && ones_.add_same(reinterpret_cast<Handle>(array));
  for (const Source& source : plan_.backward) {
    const bool known = std::find(borrowed_.begin(), borrowed_.end(), source) != borrowed_.end();
    if (known || (source.kind != Source::kParameter && source.kind != Source::kArgument)) continue;
    borrowed_.push_back(source);
    if (source.kind == Source::kArgument) continue;
    // The steps keep a handle of their own: the block may be gone before its calls are.
    whole = whole && source.index < parameters_.size() && borrowed_parameters_.add_same(parameters_[source.index]);
    if (whole) ArrayView::forget_node(borrowed_parameters_.handles().back());
  }
  if (!plan_.moved.empty()) {
    for (Handle parameter : parameters_) {
      whole = whole && own_parameters_.add_same(parameter);
      if (whole) ArrayView::forget_node(own_parameters_.handles().back());
    }
  }
  if (!whole) throw std::invalid_argument("the halves have other inputs and outputs than the plan says");
}

bool RecordedSteps::add(const std::vector<std::uintptr_t>& arrays, const std::vector<std::uintptr_t>& marks) {
  auto made = std::make_unique<Arrays>(), marked = std::make_unique<Arrays>();
  for (std::uintptr_t array : arrays) {
    if (!made->add_same(reinterpret_cast<Handle>(array))) return false;
  }
  for (std::uintptr_t mark : marks) {
    if (!marked->add_same(reinterpret_cast<Handle>(mark))) return false;
  }
  std::vector<Handle> kept;
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < plan_.kept.size(); ++i) {
    if (plan_.kept[i].kind != Source::kStep) continue;
    kept.push_back(made->handles().at(plan_.kept[i].index));
    specs.push_back(forward_->outputs()[plan_.outputs + i]);
  }
  if (!direct::possible() || !direct_runs::all_plain(kept, specs) || marks.size() != plan_.moved.size()) return false;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  free_.reserve(steps_.size() + 1);  // what gives steps back, MXNet calls, and no exception may pass
  free_.push_back(static_cast<int>(steps_.size()));
  steps_.push_back({std::move(made), nullptr, nullptr, std::move(marked), nullptr});
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
  std::unique_ptr<Arrays> gone, all_gone;  // behind the lock
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  gone = std::move(steps_.at(step).arguments);
  all_gone = std::move(steps_.at(step).all_arguments);
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
    const Source argument{Source::kArgument, i};
    const bool records = std::find(plan_.recorded.begin(), plan_.recorded.end(), argument) != plan_.recorded.end();
    const ArrayView view(arguments[i]);
    if (view.has_gradients() && records != view.may_be_recorded()) return false;
  }
  return true;
}

std::unique_ptr<Arrays> RecordedSteps::go(int step, const std::vector<Handle>& arguments) {
  if (!fits(arguments) || !borrow(step, arguments)) return nullptr;
  auto made = std::make_unique<Arrays>();
  const Device device = ArrayView(one(0)).device();
  for (std::size_t i = 0; i < plan_.outputs; ++i) {
    if (!spares_.add_new(made.get(), forward_->outputs()[i], device)) return nullptr;
  }
  std::vector<Handle> own, inputs, outputs = made->handles();
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    own = steps_.at(step).own->handles();
  }
  for (const Source& source : plan_.forward) {
    inputs.push_back((source.kind == Source::kParameter ? parameters_ : source.kind == Source::kStep ? own : arguments)
                         .at(source.index));
  }
  for (const Source& source : plan_.kept) {
    outputs.push_back((source.kind == Source::kParameter ? parameters_ : source.kind == Source::kStep ? own : arguments)
                          .at(source.index));
  }
  return direct_runs::run_plain(forward_, holder_, inputs, outputs) ? std::move(made) : nullptr;
}

bool RecordedSteps::borrow(int step, const std::vector<Handle>& arguments) {
  auto held = std::make_unique<Arrays>();
  for (const Source& source : borrowed_) {
    if (source.kind != Source::kArgument) continue;
    if (source.index >= arguments.size() || !held->add_same(arguments[source.index])) return false;
    ArrayView::forget_node(held->handles().back());  // else it would keep what it comes from
  }
  auto all = std::make_unique<Arrays>();
  for (std::size_t i = 0; i < arguments.size() && !plan_.moved.empty(); ++i) {
    if (!all->add_same(arguments[i])) return false;
    ArrayView::forget_node(all->handles().back());
  }
  std::unique_ptr<Arrays> gone, all_gone;  // behind the lock
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  gone = std::exchange(steps_.at(step).arguments, std::move(held));
  all_gone = std::exchange(steps_.at(step).all_arguments, std::move(all));
  return true;
}

// Returns the array that `source` names, for a step that waits for its backward pass.
Handle RecordedSteps::own(const Step& step, const Source& source) const {
  return (source.kind == Source::kStep       ? *step.own
          : source.kind == Source::kArgument ? *step.all_arguments
                                             : own_parameters_).handles().at(source.index);
}

std::vector<Handle> RecordedSteps::borrowed(const Step& step) const {
  std::vector<Handle> found;
  std::size_t parameter = 0, argument = 0;
  for (const Source& source : borrowed_) {
    found.push_back(source.kind == Source::kParameter ? borrowed_parameters_.handles().at(parameter++)
                                                      : step.arguments->handles().at(argument++));
  }
  return found;
}

std::vector<std::pair<Handle, Handle>> RecordedSteps::copies(int step) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  Step& own = steps_.at(step);
  std::vector<std::pair<Handle, Handle>> found;
  if (own.arguments == nullptr) return found;  // given back meanwhile
  const std::vector<Handle> from = borrowed(own);
  if (own.copies == nullptr) {
    auto made = std::make_unique<Arrays>();
    for (const Source& source : borrowed_) {
      const std::size_t place =
          std::find(plan_.backward.begin(), plan_.backward.end(), source) - plan_.backward.begin();
      if (!made->add_new(backward_->inputs()[place], ArrayView(one(0)).device())) {
        throw std::runtime_error("no memory for a copy of what a backward pass reads");
      }
    }
    own.copies = std::move(made);
  }
  for (std::size_t i = 0; i < from.size(); ++i) found.emplace_back(from[i], own.copies->handles()[i]);
  return found;
}

bool RecordedSteps::go_back(int step, const std::vector<Handle>& heads, const std::vector<Handle>& targets,
                            bool copied) {
  std::vector<Handle> own, lent, inputs;
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const Step& found = steps_.at(step);
    if (found.arguments == nullptr || (copied && found.copies == nullptr)) return false;
    own = found.own->handles();
    lent = copied ? found.copies->handles() : borrowed(found);
  }
  for (const Source& source : plan_.backward) {
    const auto at = std::find(borrowed_.begin(), borrowed_.end(), source);
    inputs.push_back(at != borrowed_.end()           ? lent.at(at - borrowed_.begin())
                     : source.kind == Source::kStep ? own.at(source.index)
                                                    : heads.at(source.index));
  }
  return direct_runs::run_plain(backward_, holder_, inputs, targets);
}

void RecordedSteps::set_predicting(std::shared_ptr<CompiledGraph> graph, std::vector<Source> inputs) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  predicting_ = std::move(graph);
  predicting_inputs_ = std::move(inputs);
}

bool RecordedSteps::go_back_predicting(int step, const std::vector<Handle>& heads, const std::vector<Handle>& targets,
                                       const std::vector<Handle>& moving) {
  std::shared_ptr<CompiledGraph> graph;
  std::vector<Handle> inputs;
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const Step& found = steps_.at(step);
    graph = predicting_;
    if (graph == nullptr || found.all_arguments == nullptr) return false;
    for (const Source& source : predicting_inputs_) {
      std::size_t place = 0;
      while (place < moving.size() && !(plan_.moved[place].moving == source)) ++place;
      inputs.push_back(place < moving.size()          ? moving[place]
                       : source.kind == Source::kHead ? heads.at(source.index)
                                                      : own(found, source));
    }
  }
  return direct_runs::run_plain(graph, holder_, inputs, targets);
}

bool RecordedSteps::move(int step, const std::vector<bool>& asked, const std::vector<Handle>& targets) {
  std::vector<MovingStatistic> statistics;
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const Step& found = steps_.at(step);
    if (!plan_.moved.empty() && found.all_arguments == nullptr) return false;
    for (std::size_t i = 0; i < plan_.moved.size(); ++i) {
      const Moved& moved = plan_.moved[i];
      if (std::none_of(moved.of.begin(), moved.of.end(), [&](std::size_t place) { return asked.at(place); })) continue;
      const Handle target = targets.empty() ? own(found, moved.moving) : targets.at(i);
      statistics.push_back({target, found.own->handles().at(moved.batch), moved.momentum});
    }
  }
  return move_statistics(statistics, ArrayView(one(0)).device());
}

std::vector<Handle> RecordedSteps::marks(int step) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  return steps_.at(step).marks->handles();
}

}  // namespace ngraph_mxnet
