#include "mxnet/direct.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/executor.h"
#include "core/fork_safety.h"
#include "mxnet/array_view.h"
#include "mxnet/compile_cache.h"
#include "mxnet/direct_runs.h"

namespace ngraph_mxnet {

using direct_runs::all_plain;
using direct_runs::apart;
using engine::Device;
using engine::Handle;

class DirectExecutor {
 public:
  DirectExecutor(std::shared_ptr<CompiledGraph> graph, std::shared_ptr<ArrayHolder> holder)
      : graph_(std::move(graph)), holder_(std::move(holder)) {}

  // Takes handles of the arrays. Returns false if the graph cannot run on them. `in_place` and `given` are as in
  // BoundGraph.
  bool take(const std::vector<std::uintptr_t>& inputs, const std::vector<std::uintptr_t>& outputs,
            bool in_place = false, bool given = false) {
    std::vector<Handle> only_read;
    for (std::uintptr_t input : inputs) {
      if (!inputs_.add_same(reinterpret_cast<Handle>(input))) return false;
      const bool written = in_place && std::find(outputs.begin(), outputs.end(), input) != outputs.end();
      if (!written) only_read.push_back(inputs_.handles().back());
    }
    for (std::uintptr_t output : outputs) {
      if (!outputs_.add_same(reinterpret_cast<Handle>(output))) return false;
    }
    const std::vector<TensorSpec> arrays(graph_->inputs().begin() + given, graph_->inputs().end());
    if (!all_plain(inputs_.handles(), arrays) || !all_plain(outputs_.handles(), graph_->outputs())) return false;
    read_ = apart(only_read, outputs_.handles());
    const bool different = apart(outputs_.handles(), {}).size() == outputs_.handles().size();
    device_ = ArrayView(outputs_.handles().front()).device();
    return different && (!read_.empty() || only_read.empty());
  }

  bool forward(std::string given = {}, double longest_here = direct_runs::kShort) const {
    return direct_runs::run(graph_, holder_, inputs_.handles(), outputs_.handles(), read_, device_, std::move(given),
                            longest_here);
  }

 private:
  std::shared_ptr<CompiledGraph> graph_;
  std::shared_ptr<ArrayHolder> holder_;
  Arrays inputs_, outputs_;
  std::vector<Handle> read_;
  Device device_;
};

namespace {

std::atomic<bool> profiling{false};

class DirectCachedOp {
 public:
  DirectCachedOp(std::shared_ptr<ArrayHolder> holder, std::vector<std::size_t> inputs, std::vector<std::size_t> outputs)
      : holder_(std::move(holder)), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

  // Returns the graph's outputs, which are the caller's then; none if it was not run.
  std::vector<Handle> call(const std::vector<Handle>& all) {
    std::vector<Handle> in;
    in.reserve(inputs_.size());
    for (std::size_t input : inputs_) {
      if (input >= all.size()) return {};
      in.push_back(all[input]);
    }
    const std::shared_ptr<CompiledGraph> graph = compiled_for(in);
    if (graph == nullptr || graph->outputs().size() != outputs_.size()) return {};
    const Device device = ArrayView(all.front()).device();
    const auto elsewhere = [&](Handle array) { return !(ArrayView(array).device() == device); };
    if (std::any_of(all.begin(), all.end(), elsewhere)) return {};  // MXNet refuses it
    Arrays out;
    for (const TensorSpec& spec : graph->outputs()) {
      // Without NumPy's shapes MXNet does not know what to make of these.
      if (spec.shape.empty() || spec.bytes() == 0 || !out.add_new(spec, device)) return {};
    }
    if (!direct_runs::run(graph, holder_, in, out.handles(), apart(in, {}), device)) return {};
    std::vector<Handle> shown;
    for (std::size_t output : outputs_) shown.push_back(out.handles()[output]);
    out.disown();
    return shown;
  }

  void learn() {
    const std::shared_ptr<CompiledGraph> made = holder_->latest();
    if (made == nullptr || !made->runs_anywhere()) return;
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    graphs_.remove_if([&](const auto& graph) { return graph.expired() || graph.lock() == made; });
    graphs_.push_front(made);
  }

 private:
  std::shared_ptr<CompiledGraph> compiled_for(const std::vector<Handle>& in) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    for (auto at = graphs_.begin(); at != graphs_.end(); ++at) {
      std::shared_ptr<CompiledGraph> graph = at->lock();
      if (graph == nullptr || !all_plain(in, graph->inputs())) continue;
      graphs_.splice(graphs_.begin(), graphs_, at);
      return graph;
    }
    for (auto at = bound_.begin(); at != bound_.end(); ++at) {
      if (!all_plain(in, (*at)->inputs())) continue;
      bound_.splice(bound_.begin(), bound_, at);
      return *at;
    }
    return bound_for(in);
  }

  // Makes a graph for these arrays' shapes from a graph for other shapes, without MXNet. Returns null if none can be
  // made.
  std::shared_ptr<CompiledGraph> bound_for(const std::vector<Handle>& in) {
    std::vector<std::vector<std::int64_t>> shapes;
    for (Handle array : in) {
      if (!ArrayView(array).plain()) return nullptr;
      shapes.push_back(ArrayView(array).shape());
    }
    std::vector<std::shared_ptr<CompiledGraph>> others(bound_.begin(), bound_.end());
    for (const auto& graph : graphs_) others.push_back(graph.lock());
    std::unordered_set<const void*> asked;
    for (const std::shared_ptr<CompiledGraph>& other : others) {
      if (other == nullptr || other->inputs().size() != in.size()) continue;
      const auto same = [](Handle array, const TensorSpec& spec) { return ArrayView(array).is_of(*spec.element); };
      if (!std::equal(in.begin(), in.end(), other->inputs().begin(), same)) continue;
      if (!asked.insert(other->maker()).second) continue;
      std::shared_ptr<CompiledGraph> found;
      try {
        found = other->for_shapes(shapes);
      } catch (const std::invalid_argument&) {
        continue;  // MXNet asks for it to be compiled, which tells what is wrong
      }
      if (found == nullptr) continue;
      bound_.push_front(found);
      while (bound_.size() > CompileCache::instance().shapes()) bound_.pop_back();
      return found;
    }
    return nullptr;
  }

  std::shared_ptr<ArrayHolder> holder_;
  std::vector<std::size_t> inputs_, outputs_;
  ForkSafeMutex mutex_{Rank::kDirectOp};
  std::list<std::weak_ptr<CompiledGraph>> graphs_;  // of different shapes, the latest first; CompileCache keeps few
  std::list<std::shared_ptr<CompiledGraph>> bound_;  // made here, likewise
};

// By handle. Never destroyed: threads may outlive static objects.
template <class Entry>
class Registry {
 public:
  void add(Handle handle, std::shared_ptr<Entry> entry) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    entries_[handle] = std::move(entry);
  }
  std::shared_ptr<Entry> find(Handle handle) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto at = entries_.find(handle);
    return at == entries_.end() ? nullptr : at->second;
  }
  void remove(Handle handle) {
    std::shared_ptr<Entry> removed;  // it goes when the lock is gone
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto at = entries_.find(handle);
    if (at == entries_.end()) return;
    removed = std::move(at->second);
    entries_.erase(at);
  }

 private:
  ForkSafeMutex mutex_{Rank::kDirectOps};
  std::unordered_map<Handle, std::shared_ptr<Entry>> entries_;
};

Registry<DirectExecutor>& executors() {
  static auto* const registry = new Registry<DirectExecutor>;
  return *registry;
}

Registry<DirectCachedOp>& cached_ops() {
  static auto* const registry = new Registry<DirectCachedOp>;
  return *registry;
}

// The outputs of a cached op that runs past MXNet's, which are the caller's then; none: it is MXNet's to do.
std::vector<Handle> call_past_mxnet(Handle op, const std::vector<Handle>& inputs) {
  if (inputs.empty() || direct::profiles()) return {};
  const std::shared_ptr<DirectCachedOp> found = cached_ops().find(op);
  bool records = true, trains = true;
  if (found == nullptr || mxnet.is_recording(&records) != 0 || mxnet.is_training(&trains) != 0) return {};
  return records || trains ? std::vector<Handle>() : found->call(inputs);
}

int forward(Handle executor, int is_train) {
  Turn turn;
  if (!is_train && !direct::profiles()) {
    const std::shared_ptr<DirectExecutor> found = executors().find(executor);
    if (found != nullptr && found->forward()) return 0;
  }
  return mxnet.executor_forward(executor, is_train);
}

int backward(Handle executor, std::uint32_t count, Handle* head_gradients, int is_train) {
  Turn turn;
  return mxnet.executor_backward(executor, count, head_gradients, is_train);
}

int cached_op(Handle op, int inputs, Handle* in, int* outputs, Handle** out, const int** storage_types) {
  Turn turn;
  thread_local std::vector<Handle> made;
  thread_local std::vector<int> types;
  if (*outputs == 0) made = call_past_mxnet(op, std::vector<Handle>(in, in + inputs));
  if (*outputs == 0 && !made.empty()) {
    types.assign(made.size(), engine::kDense);
    *outputs = static_cast<int>(made.size());
    *out = made.data();
    *storage_types = types.data();
    return 0;
  }
  const int result = mxnet.cached_op(op, inputs, in, outputs, out, storage_types);
  if (result == 0) {
    if (const std::shared_ptr<DirectCachedOp> found = cached_ops().find(op)) found->learn();
  }
  return result;
}

int free_executor(Handle executor) {
  executors().remove(executor);
  return mxnet.free_executor(executor);
}

int free_cached_op(Handle op) {
  cached_ops().remove(op);
  return mxnet.free_cached_op(op);
}

int monitor(Handle executor, LibMXNet::Callback callback, void* data) {
  executors().remove(executor);
  return mxnet.monitor(executor, callback, data);
}

int monitor_all(Handle executor, LibMXNet::Callback callback, void* data, bool all) {
  executors().remove(executor);
  return mxnet.monitor_all(executor, callback, data, all);
}

int hook(Handle op, LibMXNet::Callback callback, bool all) {
  cached_ops().remove(op);
  return mxnet.hook(op, callback, all);
}

// The profiler shows operators as MXNet runs them.
int profile(int state) {
  profiling.store(state != 0);
  return mxnet.profile(state);
}

int profile_process(int state, int process, void* store) {
  profiling.store(state != 0);
  return mxnet.profile_process(state, process, store);
}

}  // namespace

bool direct::possible() {
  static const bool at_start = [] {
    const char* const autostart = std::getenv("MXNET_PROFILER_AUTOSTART");
    if (autostart != nullptr && std::string_view(autostart) == "1") profiling.store(true);
    return engine::queues() && ArrayView::usable();
  }();
  return at_start;
}

bool direct::profiles() { return profiling.load(std::memory_order_relaxed); }

Replacements direct::replacements() {
  return {{"MXExecutorForward", address_of(forward)},
          {"MXExecutorBackwardEx", address_of(backward)},
          {"MXInvokeCachedOpEx", address_of(cached_op)},
          {"MXExecutorFree", address_of(free_executor)},
          {"MXFreeCachedOp", address_of(free_cached_op)},
          {"MXExecutorSetMonitorCallback", address_of(monitor)},
          {"MXExecutorSetMonitorCallbackEX", address_of(monitor_all)},
          {"MXCachedOpRegisterOpHook", address_of(hook)},
          {"MXSetProfilerState", address_of(profile)},
          {"MXSetProcessProfilerState", address_of(profile_process)}};
}

void direct::add_executor(std::uintptr_t executor, const std::shared_ptr<ArrayHolder>& holder,
                          const std::vector<std::uintptr_t>& inputs, const std::vector<std::uintptr_t>& outputs) {
  const std::shared_ptr<CompiledGraph> graph = holder->latest();
  if (graph == nullptr || !graph->runs_anywhere() || outputs.empty() || !possible()) return;
  const auto direct = std::make_shared<DirectExecutor>(graph, holder);
  if (direct->take(inputs, outputs)) executors().add(reinterpret_cast<Handle>(executor), direct);
}

constexpr double kWorthAThread = 1e-4;  // seconds

BoundGraph::BoundGraph(std::shared_ptr<CompiledGraph> graph, const std::vector<std::uintptr_t>& inputs,
                       const std::vector<std::uintptr_t>& outputs, bool in_place, bool given)
    : given_bytes_(given && !graph->inputs().empty() ? graph->inputs().front().bytes() : 0) {
  if (!graph->runs_anywhere() || outputs.empty() || !direct::possible()) return;
  if (given && given_bytes_ == 0) return;
  auto bound = std::make_shared<DirectExecutor>(std::move(graph), std::make_shared<ArrayHolder>());
  if (bound->take(inputs, outputs, in_place, given)) bound_ = std::move(bound);
}

bool BoundGraph::run(std::string given, bool here, bool profiled) const {
  if (given.size() != given_bytes_) {
    throw std::invalid_argument("found " + std::to_string(given.size()) + " given bytes, expected " +
                                std::to_string(given_bytes_));
  }
  // A training step goes on with Python of the caller's, beside which even short runs are better done elsewhere.
  const double longest_here = here ? direct_runs::kShort : kWorthAThread;
  return bound_ != nullptr && (profiled || !direct::profiles()) &&
         bound_->forward(std::move(given), longest_here);
}

bool direct::add_cached_op(std::uintptr_t op, const std::shared_ptr<ArrayHolder>& holder,
                           std::vector<std::size_t> inputs, std::vector<std::size_t> outputs) {
  if (!possible()) return false;
  cached_ops().add(reinterpret_cast<Handle>(op),
                   std::make_shared<DirectCachedOp>(holder, std::move(inputs), std::move(outputs)));
  return true;
}

std::vector<Handle> direct::call(Handle op, const std::vector<Handle>& inputs) {
  Turn turn;
  return call_past_mxnet(op, inputs);
}

}  // namespace ngraph_mxnet
