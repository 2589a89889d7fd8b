#include "direct.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <list>
#include <mutex>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include <pthread.h>

#include "array_view.h"
#include "executor.h"
#include "fork_safety.h"
#include "turns.h"
#include "workers.h"

namespace ngraph_mxnet {
namespace {

using engine::Completion;
using engine::Device;
using engine::Handle;
using Callback = void*;

struct {
  int (*create)(const std::int64_t* shape, int dimensions, int device_type, int device_id, int delay, int dtype,
                Handle* array);
  int (*copy)(Handle, Handle*);
  int (*free)(Handle);
  int (*data)(Handle, void**);
  int (*storage_type)(Handle, int*);
  int (*is_recording)(bool*);
  int (*free_executor)(Handle);
  int (*free_cached_op)(Handle);
  int (*monitor)(Handle, Callback, void*);
  int (*monitor_all)(Handle, Callback, void*, bool);
  int (*hook)(Handle, Callback, bool);
  int (*profile)(int);
  int (*profile_process)(int, int, void*);
} mxnet;

constexpr double kShort = 1e-3;  // seconds
constexpr std::size_t kMostShapes = 16;

std::atomic<std::size_t> direct_calls{0};
std::atomic<bool> profiling{false};

// Calls under way. None begins while the process forks, which waits for the others: their arrays would be busy in the
// child for ever.
class UnderWay {
 public:
  static bool begin() {
    count_.fetch_add(1);
    if (!closed_.load()) return true;
    end();
    return false;
  }
  static void end() { count_.fetch_sub(1); }

  static void finish() {
    while (count_.load() > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  static void before_fork() {
    closed_.store(true);
    // One that waits for the GIL, which the forking thread may have, would never end.
    for (int turn = 0; turn < kPatience && count_.load() > 0; ++turn) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  static void after_fork_in_parent() { closed_.store(false); }
  static void after_fork_in_child() {
    count_.store(0);
    closed_.store(false);
  }

 private:
  static constexpr int kPatience = 100000;  // ten seconds
  static std::atomic<int> count_;
  static std::atomic<bool> closed_;
};

std::atomic<int> UnderWay::count_{0};
std::atomic<bool> UnderWay::closed_{false};

[[maybe_unused]] const int registered =
    pthread_atfork(UnderWay::before_fork, UnderWay::after_fork_in_parent, UnderWay::after_fork_in_child);

// What a call runs, and on what.
struct Run {
  std::shared_ptr<CompiledGraph> graph;
  std::shared_ptr<ArrayHolder> holder;
  std::vector<InputTensor> inputs;
  std::vector<char*> outputs;

  // Finds the memory of the arrays; false if one has none that we could use, among them those that are blocked.
  bool look(const std::vector<Handle>& in, const std::vector<Handle>& out, std::vector<Handle>* blocked) {
    inputs.reserve(in.size());
    for (Handle array : in) {
      const ArrayView view(array);
      inputs.push_back({view.data(), view.version()});
      if (view.blocked()) blocked->push_back(array);
    }
    const auto no_memory = [](const InputTensor& input) { return input.data == nullptr; };
    if (std::any_of(inputs.begin(), inputs.end(), no_memory)) return false;
    outputs.reserve(out.size());
    for (Handle array : out) {
      outputs.push_back(ArrayView(array).data());
      if (outputs.back() == nullptr) return false;
    }
    return true;
  }

  void operator()(const Completion& completion) const {
    try {
      graph->call(inputs, outputs, holder.get());
    } catch (const std::exception& error) {
      completion.fail(std::runtime_error(std::string("NGraphSubgraphOp: ") + error.what()));
      return;
    }
    completion();
  }
};


// The arrays among these that share no memory; none if one shares its memory with one of `others`.
std::vector<Handle> apart(const std::vector<Handle>& arrays, const std::vector<Handle>& others) {
  std::vector<std::pair<const void*, Handle>> variables;
  variables.reserve(arrays.size());
  for (Handle array : arrays) variables.emplace_back(ArrayView(array).variable(), array);
  std::sort(variables.begin(), variables.end());
  std::vector<Handle> found;
  for (std::size_t i = 0; i < variables.size(); ++i) {
    if (i == 0 || variables[i].first != variables[i - 1].first) found.push_back(variables[i].second);
  }
  for (Handle other : others) {
    const std::pair<const void*, Handle> first(ArrayView(other).variable(), nullptr);
    const auto at = std::lower_bound(variables.begin(), variables.end(), first);
    if (at != variables.end() && at->first == first.first) return {};
  }
  return found;
}

// Whether it was run, or is on its way; `read` are those of the inputs that share no memory.
bool run_on(const std::shared_ptr<CompiledGraph>& graph, const std::shared_ptr<ArrayHolder>& holder,
         const std::vector<Handle>& inputs, const std::vector<Handle>& outputs, const std::vector<Handle>& read,
         Device device) {
  const bool is_long = graph->fastest() > kShort;
  std::vector<Handle> blocked;
  const auto start = [&](const Completion& completion) {
    Run run{graph, holder, {}, {}};
    if (!run.look(inputs, outputs, &blocked) || !UnderWay::begin()) return false;
    direct_calls.fetch_add(1, std::memory_order_relaxed);
    if (is_long) {
      workers::submit([run = std::move(run), completion] {
        run(completion);
        UnderWay::end();
      });
    } else {
      const OutOfTurn running;
      run(completion);
      UnderWay::end();
    }
    return true;
  };
  const auto push = [&] { return engine::run_now(start, read, outputs, device, "NGraphSubgraphOp", is_long); };
  if (push()) return true;
  // Parameters stay as a native operator has left them; MXNet would copy them row by row at each call.
  for (Handle array : blocked) {
    void* data;
    if (mxnet.data(array, &data) != 0) return false;
  }
  return !blocked.empty() && push();
}

bool plain(Handle array, const TensorSpec& spec) {
  int storage = engine::kDense;
  return mxnet.storage_type(array, &storage) == 0 && storage == engine::kDense && ArrayView(array).is(spec) &&
         ArrayView(array).device().type == engine::kCpu;
}

bool all_plain(const std::vector<Handle>& arrays, const std::vector<TensorSpec>& specs) {
  return arrays.size() == specs.size() && std::equal(arrays.begin(), arrays.end(), specs.begin(), plain);
}

// Arrays of our own: handles that are freed with it.
class Arrays {
 public:
  Arrays() = default;
  ~Arrays() {
    for (Handle array : handles_) mxnet.free(array);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  bool add_same(Handle array) {
    Handle copied;
    if (mxnet.copy(array, &copied) != 0) return false;
    handles_.push_back(copied);
    return true;
  }
  bool add_new(const TensorSpec& spec, Device device) {
    Handle made;
    if (mxnet.create(spec.shape.data(), static_cast<int>(spec.shape.size()), device.type, device.id, 0,
                     spec.element->mxnet, &made) != 0) {
      return false;
    }
    handles_.push_back(made);
    return true;
  }
  const std::vector<Handle>& handles() const { return handles_; }
  void disown() { handles_.clear(); }

 private:
  std::vector<Handle> handles_;
};

class DirectExecutor {
 public:
  DirectExecutor(std::shared_ptr<CompiledGraph> graph, std::shared_ptr<ArrayHolder> holder)
      : graph_(std::move(graph)), holder_(std::move(holder)) {}

  // Whether it can run on these arrays.
  bool take(const std::vector<std::uintptr_t>& inputs, const std::vector<std::uintptr_t>& outputs) {
    for (std::uintptr_t input : inputs) {
      if (!inputs_.add_same(reinterpret_cast<Handle>(input))) return false;
    }
    for (std::uintptr_t output : outputs) {
      if (!outputs_.add_same(reinterpret_cast<Handle>(output))) return false;
    }
    if (!all_plain(inputs_.handles(), graph_->inputs()) || !all_plain(outputs_.handles(), graph_->outputs())) {
      return false;
    }
    read_ = apart(inputs_.handles(), outputs_.handles());
    const bool different = apart(outputs_.handles(), {}).size() == outputs_.handles().size();
    device_ = ArrayView(outputs_.handles().front()).device();
    return different && (!read_.empty() || inputs_.handles().empty());
  }

  bool forward() const { return run_on(graph_, holder_, inputs_.handles(), outputs_.handles(), read_, device_); }

 private:
  std::shared_ptr<CompiledGraph> graph_;
  std::shared_ptr<ArrayHolder> holder_;
  Arrays inputs_, outputs_;
  std::vector<Handle> read_;
  Device device_;
};

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
    if (!run_on(graph, holder_, in, out.handles(), apart(in, {}), device)) return {};
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
    if (graphs_.size() > kMostShapes) graphs_.pop_back();
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
    return nullptr;
  }

  std::shared_ptr<ArrayHolder> holder_;
  std::vector<std::size_t> inputs_, outputs_;
  ForkSafeMutex mutex_;
  std::list<std::weak_ptr<CompiledGraph>> graphs_;  // as they were made for shapes, the latest first
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
  ForkSafeMutex mutex_;
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

int free_executor(Handle executor) {
  executors().remove(executor);
  return mxnet.free_executor(executor);
}

int free_cached_op(Handle op) {
  cached_ops().remove(op);
  return mxnet.free_cached_op(op);
}

int monitor(Handle executor, Callback callback, void* data) {
  executors().remove(executor);
  return mxnet.monitor(executor, callback, data);
}

int monitor_all(Handle executor, Callback callback, void* data, bool all) {
  executors().remove(executor);
  return mxnet.monitor_all(executor, callback, data, all);
}

int hook(Handle op, Callback callback, bool all) {
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

bool possible() {
  static const bool at_start = [] {
    const char* const autostart = std::getenv("MXNET_PROFILER_AUTOSTART");
    if (autostart != nullptr && std::string_view(autostart) == "1") profiling.store(true);
    return engine::queues() && ArrayView::usable();
  }();
  return at_start;
}

}  // namespace

void direct::connect(const std::string& path) {
  const LibMXNet library(path);
  library.find("MXNDArrayCreateEx64", &mxnet.create);
  library.find("MXShallowCopyNDArray", &mxnet.copy);
  library.find("MXNDArrayFree", &mxnet.free);
  library.find("MXNDArrayGetData", &mxnet.data);
  library.find("MXNDArrayGetStorageType", &mxnet.storage_type);
  library.find("MXAutogradIsRecording", &mxnet.is_recording);
  library.find("MXExecutorFree", &mxnet.free_executor);
  library.find("MXFreeCachedOp", &mxnet.free_cached_op);
  library.find("MXExecutorSetMonitorCallback", &mxnet.monitor);
  library.find("MXExecutorSetMonitorCallbackEX", &mxnet.monitor_all);
  library.find("MXCachedOpRegisterOpHook", &mxnet.hook);
  library.find("MXSetProfilerState", &mxnet.profile);
  library.find("MXSetProcessProfilerState", &mxnet.profile_process);
}

Replacements direct::replacements() {
  return {{"MXExecutorFree", address_of(free_executor)},
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

bool direct::add_cached_op(std::uintptr_t op, const std::shared_ptr<ArrayHolder>& holder,
                           std::vector<std::size_t> inputs, std::vector<std::size_t> outputs) {
  if (!possible()) return false;
  cached_ops().add(reinterpret_cast<Handle>(op),
                   std::make_shared<DirectCachedOp>(holder, std::move(inputs), std::move(outputs)));
  return true;
}

bool direct::forward(Handle executor) {
  if (profiling.load(std::memory_order_relaxed)) return false;
  const std::shared_ptr<DirectExecutor> found = executors().find(executor);
  return found != nullptr && found->forward();
}

bool direct::call(Handle op, int inputs, Handle* in, int* outputs, Handle** out, const int** storage_types) {
  if (*outputs > 0 || inputs == 0 || profiling.load(std::memory_order_relaxed)) return false;
  const std::shared_ptr<DirectCachedOp> found = cached_ops().find(op);
  if (found == nullptr) return false;
  bool recording = true;
  if (mxnet.is_recording(&recording) != 0 || recording) return false;
  thread_local std::vector<Handle> results;
  thread_local std::vector<int> types;
  results = found->call(std::vector<Handle>(in, in + inputs));
  if (results.empty()) return false;
  types.assign(results.size(), engine::kDense);
  *outputs = static_cast<int>(results.size());
  *out = results.data();
  *storage_types = types.data();
  return true;
}

void direct::learn(Handle op) {
  if (const std::shared_ptr<DirectCachedOp> found = cached_ops().find(op)) found->learn();
}

std::size_t direct::calls() { return direct_calls.load(); }

void direct::finish() { UnderWay::finish(); }

}  // namespace ngraph_mxnet
