#include "mxnet/operators.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "mxnet/array_view.h"
#include "mxnet/direct_runs.h"
#include "mxnet/libmxnet.h"

namespace ngraph_mxnet {
namespace {

using engine::Handle;

// What becomes of the next operator that this thread hands to MXNet's Imperative::InvokeOp.
struct Running {
  std::size_t outputs;     // MXNet is to run nothing if it has so many; 0: it is to run
  bool was_left = false;   // MXNet ran nothing
  bool has_state = false;  // MXNet ran it, and made a state that its backward pass reads
};

thread_local Running* running = nullptr;

// In the place of Imperative::InvokeOp, for all calls within libmxnet.
void* run_op(void* state, void* imperative, const void* context, const void* attributes, const void* in,
             const void* out, const void* requests, int mode, void* given) {
  Running* const mine = std::exchange(running, nullptr);
  void** const pointer = static_cast<void**>(state);
  if (mine != nullptr && mine->outputs > 0 &&
      static_cast<const std::vector<Handle>*>(out)->size() == mine->outputs) {
    mine->was_left = true;
    pointer[0] = pointer[1] = nullptr;
    return state;
  }
  mxnet.run_op(state, imperative, context, attributes, in, out, requests, mode, given);
  if (mine != nullptr) mine->has_state = pointer[0] != nullptr;
  return state;
}

// The results of all operators: their shapes may be as many as those of the batches.
SpareArrays& spares() {
  static auto* const all = new SpareArrays(std::size_t{1} << 28);  // never destroyed: threads may outlive static objects
  return *all;
}

bool stands_between() {
  static const bool redirected = mxnet.run_op.redirect(reinterpret_cast<void*>(run_op));
  return redirected;
}

}  // namespace

OperatorCall::OperatorCall(Handle op, int inputs, Handle* in, int options, const char** keys, const char** values)
    : op(op), inputs(in, in + inputs), keys_(keys, keys + options), values_(values, values + options) {
  for (int i = 0; i < options; ++i) attributes.emplace_back(keys[i], values[i]);
}

int OperatorCall::invoke(bool compiles, bool recorded, int* outputs, Handle** out, const int** types) {
  const std::shared_ptr<Link> link = compiles && stands_between() ? compiled(recorded) : nullptr;
  if (link != nullptr && link->graph != nullptr) return invoke_compiled(*link, outputs, out, types);
  Running here{0};
  const bool is_new = link == nullptr && !key_.empty();
  if (is_new) running = &here;
  const int result = invoke_stock(outputs, out, types);
  running = nullptr;
  if (here.has_state) {
    links::add(key_, nullptr, {});
  } else if (is_new && !recorded && result == 0) {
    OperatorsSeen::all().add(key_, *this, specs_, std::vector<Handle>(*out, *out + *outputs));
  }
  return result;
}

std::shared_ptr<Link> OperatorCall::compiled(bool recorded) {
  for (Handle array : inputs) {
    const ArrayView view(array);
    if (view.element() == nullptr || !view.plain()) return nullptr;
    if (!recorded && !view.is_of(element_by_name("f32"))) return nullptr;
    specs_.emplace_back(view.element()->name, view.shape());
  }
  if (specs_.empty()) return nullptr;
  key_ = operator_key(op, attributes, specs_);
  if (!recorded) key_.insert(0, "-");
  return links::find(key_);
}

int OperatorCall::invoke_stock(int* outputs, Handle** out, const int** types) {
  return mxnet.invoke_ex(op, static_cast<int>(inputs.size()), inputs.data(), outputs, out,
                         static_cast<int>(keys_.size()), keys_.data(), values_.data(), types);
}

int OperatorCall::invoke_compiled(const Link& link, int* outputs, Handle** out, const int** types) {
  const std::vector<TensorSpec>& specs = link.graph->outputs();
  thread_local std::vector<Handle> given;  // the caller reads it after the call
  Arrays large;
  const auto is_large = [](const TensorSpec& spec) { return SpareArrays::is_large(spec); };
  if (std::any_of(specs.begin(), specs.end(), is_large)) {
    const engine::Device device = ArrayView(inputs.front()).device();
    for (const TensorSpec& spec : specs) engine::check(spares().add_new(&large, spec, device));
    given = large.handles();
    *outputs = static_cast<int>(given.size());
    *out = given.data();
  }
  Running here{specs.size()};
  running = &here;
  int result = invoke_stock(outputs, out, types);
  running = nullptr;
  if (result != 0 && !large.handles().empty()) {  // in this thread's mode they may have other types
    *outputs = 0;
    *out = nullptr;
    return invoke_stock(outputs, out, types);
  }
  if (result == 0 && here.was_left) result = finish(link, outputs, out, types);
  if (result == 0) large.disown();
  return result;
}

// Computes the outputs, which MXNet has made; where that fails, MXNet does.
int OperatorCall::finish(const Link& link, int* outputs, Handle** out, const int** types) {
  const std::vector<Handle> made(*out, *out + *outputs);
  std::vector<Handle> read;
  for (const auto& [kind, index] : link.sources) read.push_back(inputs.at(index));
  void* memory = nullptr;  // MXNet gives an array its memory when it is first asked for it
  const bool have_memory =
      std::all_of(made.begin(), made.end(), [&](Handle array) { return mxnet.data(array, &memory) == 0; });
  if (have_memory && direct_runs::run_plain(link.graph, link.holder, read, made)) return 0;
  const engine::Unrecorded unrecorded;
  return invoke_stock(outputs, out, types);
}

bool reset_now(Handle op, const std::vector<Handle>& arrays) {
  constexpr std::size_t kFew = std::size_t{1} << 22;  // bytes that one thread fills sooner than MXNet begins
  static const Handle reset = [] {
    Handle found = nullptr;
    return mxnet.find_op("reset_arrays", &found) == 0 ? found : nullptr;
  }();
  if (op != reset || arrays.empty()) return false;
  std::size_t bytes = 0;
  for (Handle array : arrays) {
    const ArrayView view(array);
    if (!view.plain() || view.bytes() == 0) return false;
    bytes += view.bytes();
  }
  const std::vector<Handle> written = direct_runs::apart(arrays, {});
  if (bytes > kFew || written.size() != arrays.size()) return false;
  const auto body = [&](const engine::Completion& completion) {
    for (Handle array : arrays) {
      ArrayView(array).unblock();
      if (ArrayView(array).data() == nullptr) return false;
    }
    for (Handle array : arrays) std::memset(ArrayView(array).data(), 0, ArrayView(array).bytes());
    completion();
    return true;
  };
  return engine::run_now(body, {}, written, ArrayView(arrays.front()).device()) == engine::Outcome::kRan;
}

OperatorsSeen& OperatorsSeen::all() {
  static auto* const all = new OperatorsSeen;  // never destroyed: threads may outlive static objects
  return *all;
}

void OperatorsSeen::add(const std::string& key, const OperatorCall& call, const std::vector<TensorSpec>& inputs,
                        const std::vector<Handle>& outputs) {
  LinkDescription found;
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    if (counts_.size() >= kMost) counts_.clear();
    if (++counts_[key] != kOften || programs_ >= kMostPrograms) return;
    ++programs_;
  }
  found.leaves = inputs;
  found.wanted.resize(inputs.size());
  found.operators.push_back({call.op, call.attributes, {}, outputs.size()});
  for (std::size_t i = 0; i < inputs.size(); ++i) found.operators.back().inputs.push_back({true, i, {}, false});
  for (Handle output : outputs) {
    const ArrayView view(output);
    if (view.element() == nullptr || !view.plain()) return;
    found.values.emplace_back(view.element()->name, view.shape());
  }
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  due_.emplace_back(key, std::move(found));
  is_due_.store(true, std::memory_order_relaxed);
}

std::vector<OperatorsSeen::Keyed> OperatorsSeen::take() {
  std::vector<Keyed> taken;
  if (!is_due_.load(std::memory_order_relaxed)) return taken;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  taken.swap(due_);
  is_due_.store(false, std::memory_order_relaxed);
  return taken;
}

}  // namespace ngraph_mxnet
