#include "mxnet/direct_runs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>

#include "core/fork_safety.h"
#include "core/places.h"
#include "mxnet/array_view.h"
#include "mxnet/libmxnet.h"

namespace ngraph_mxnet {

namespace {

// Threads of our own, for graphs that run while the caller goes on.
class Pool {
 public:
  // Runs the job, which must not throw, on a thread that is idle, or on a new one; behind others where there are as
  // many threads as cores, or the system gives no more. False, with the job as it was, if there is no thread. Threads
  // are never joined, and a forked child has new ones. No job may wait for one submitted later.
  bool submit(std::function<void()>* job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (idle_.empty()) {
      if (!add_thread()) return false;
      jobs_.push_back(std::move(*job));
    } else {
      // The one that was last at work: its own team of threads is the most likely to be still awake.
      Place* const place = idle_.back();
      idle_.pop_back();
      place->job = std::move(*job);
      place->changed.notify_one();
    }
    return true;
  }

 private:
  struct Place {
    std::condition_variable changed;
    std::function<void()> job;
  };

  // If there may be one more, and can be; whether there is any.
  bool add_thread() {
    if (threads_ < usable_cores()) {
      try {
        std::thread(&Pool::work, this).detach();
        ++threads_;
      } catch (const std::system_error&) {
      }
    }
    return threads_ > 0;
  }

  void work() {
    Place place;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (jobs_.empty()) {
        idle_.push_back(&place);
        place.changed.wait(lock, [&] { return place.job != nullptr; });
      } else {
        place.job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      lock.unlock();
      place.job();
      place.job = nullptr;  // what it holds may take any lock to go
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::deque<std::function<void()>> jobs_;
  std::vector<Place*> idle_;
  int threads_ = 0;
};

// Never destroyed: threads may outlive static objects.
Pool* pool = new Pool;

[[maybe_unused]] const int pool_registered = pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });

using engine::Completion;
using engine::Device;
using engine::Handle;

constexpr const char* kName = "NGraphSubgraphOp";

std::atomic<std::size_t> runs{0};

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

// A graph and the tensors that one call runs it on.
struct Run {
  std::shared_ptr<CompiledGraph> graph;
  std::shared_ptr<ArrayHolder> holder;
  std::string given;  // the first input, where it is no array
  std::vector<InputTensor> inputs;
  std::vector<char*> outputs;
  std::vector<AlignedBuffer> copies;

  // Finds the memory of the arrays; false if one has none that we could use, among them inputs that are blocked.
  bool look(const std::vector<Handle>& in, const std::vector<Handle>& out, std::vector<Handle>* blocked) {
    for (Handle array : out) ArrayView(array).unblock();
    inputs.reserve(in.size() + 1);
    if (!given.empty()) inputs.push_back({&given[0], std::nullopt});
    for (Handle array : in) {
      const ArrayView view(array);
      inputs.push_back({view.data(), view.version()});
      if (view.blocked()) blocked->push_back(array);
    }
    outputs.reserve(out.size());
    for (Handle array : out) outputs.push_back(ArrayView(array).data());
    return complete();
  }

  // The same, and copies what is blocked: what has no version is not taken for what it was before.
  bool look_and_copy(const std::vector<Handle>& in, const std::vector<Handle>& out) {
    std::vector<Handle> blocked;
    look(in, out, &blocked);
    copies.reserve(blocked.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const ArrayView view(in[i]);
      if (view.blocked()) inputs[i + !given.empty()] = {view.unblocked(&copies.emplace_back()), std::nullopt};
    }
    return complete();
  }

  bool complete() const {
    return std::none_of(inputs.begin(), inputs.end(), [](const InputTensor& input) { return input.data == nullptr; }) &&
           std::find(outputs.begin(), outputs.end(), nullptr) == outputs.end();
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

void hand_off(std::shared_ptr<Run> run, const Completion& completion) {
  std::function<void()> job = [run = std::move(run), completion] {
    (*run)(completion);
    UnderWay::end();
  };
  if (!pool->submit(&job)) job();
}

// Behind what is under way on the arrays, on a thread of the engine's. The caller's handles may be gone by then.
bool run_later(const std::shared_ptr<Run>& run, const std::vector<Handle>& inputs, const std::vector<Handle>& outputs,
               const std::vector<Handle>& read, Device device) {
  const auto in = std::make_shared<Arrays>(), out = std::make_shared<Arrays>();
  for (Handle array : inputs) {
    if (!in->add_same(array)) return false;
  }
  for (Handle array : outputs) {
    const ArrayView view(array);
    if ((view.data() == nullptr && !view.blocked()) || !out->add_same(array)) return false;
  }
  const auto start = [run, in, out](const Completion& completion) {
    learn_thread();
    runs.fetch_add(1, std::memory_order_relaxed);
    if (!run->look_and_copy(in->handles(), out->handles())) {
      completion.fail(std::runtime_error("NGraphSubgraphOp: an array has no memory"));
    } else if (run->graph->fastest() > direct_runs::kShort && UnderWay::begin()) {
      hand_off(run, completion);
    } else {
      (*run)(completion);  // while the process forks, too: MXNet waits for its engine's threads
    }
    return true;
  };
  return engine::run_later(start, read, outputs, device, kName);
}

}  // namespace

Arrays::~Arrays() {
  for (Handle array : handles_) mxnet.free(array);
}

bool Arrays::add_reshaped(Handle array, const std::vector<std::int64_t>& shape) {
  Handle reshaped = nullptr;
  if (mxnet.reshape(array, static_cast<int>(shape.size()), shape.data(), false, &reshaped) != 0) return false;
  handles_.push_back(reshaped);
  return true;
}

bool Arrays::add_same(Handle array) {
  Handle copied;
  if (mxnet.shallow_copy(array, &copied) != 0) return false;
  handles_.push_back(copied);
  return true;
}

bool Arrays::add_new(const TensorSpec& spec, Device device) {
  Handle made;
  if (mxnet.create(spec.shape.data(), static_cast<int>(spec.shape.size()), device.type, device.id, 0,
                   spec.element->mxnet, &made) != 0) {
    return false;
  }
  handles_.push_back(made);
  return true;
}

bool direct_runs::all_plain(const std::vector<Handle>& arrays, const std::vector<TensorSpec>& specs) {
  const auto fits = [](Handle array, const TensorSpec& spec) {
    const ArrayView view(array);
    return view.plain() && view.is(spec);
  };
  return arrays.size() == specs.size() && std::equal(arrays.begin(), arrays.end(), specs.begin(), fits);
}

std::vector<Handle> direct_runs::apart(const std::vector<Handle>& arrays, const std::vector<Handle>& others) {
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

bool direct_runs::run(const std::shared_ptr<CompiledGraph>& graph, const std::shared_ptr<ArrayHolder>& holder,
                      const std::vector<Handle>& inputs, const std::vector<Handle>& outputs,
                      const std::vector<Handle>& read, Device device, std::string given, double longest_here) {
  std::shared_ptr<Run> run;
  std::vector<Handle> blocked;
  const auto start = [&](const Completion& completion) {
    if (!run->look(inputs, outputs, &blocked) || !UnderWay::begin()) return false;
    runs.fetch_add(1, std::memory_order_relaxed);
    if (graph->fastest() > longest_here) {
      hand_off(run, completion);
    } else {
      const OutOfTurn running;
      (*run)(completion);
      UnderWay::end();
    }
    return true;
  };
  const auto push = [&] {
    run = std::make_shared<Run>(Run{graph, holder, given, {}, {}, {}});
    return engine::run_now(start, read, outputs, device, kName);
  };
  engine::Outcome outcome = push();
  if (outcome == engine::Outcome::kDeclined && !blocked.empty()) {
    // Parameters stay as a native operator has left them, so they are put right once.
    for (Handle array : blocked) {
      void* data;
      if (mxnet.data(array, &data) != 0) return false;
    }
    outcome = push();
  }
  if (outcome == engine::Outcome::kBusy) return run_later(run, inputs, outputs, read, device);
  return outcome == engine::Outcome::kRan;
}

bool direct_runs::run_plain(const std::shared_ptr<CompiledGraph>& graph, const std::shared_ptr<ArrayHolder>& holder,
                            const std::vector<Handle>& inputs, const std::vector<Handle>& outputs) {
  if (!all_plain(inputs, graph->inputs()) || !all_plain(outputs, graph->outputs())) return false;
  const std::vector<Handle> read = apart(inputs, outputs);
  if ((read.empty() && !inputs.empty()) || apart(outputs, {}).size() != outputs.size()) return false;
  return run(graph, holder, inputs, outputs, read, ArrayView(outputs.front()).device());
}

std::size_t direct_runs::count() { return runs.load(); }

void direct_runs::finish() { UnderWay::finish(); }

}  // namespace ngraph_mxnet
