#include "direct_runs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include <pthread.h>

#include "array_view.h"
#include "libmxnet.h"
#include "turns.h"
#include "workers.h"

namespace ngraph_mxnet {
namespace {

using engine::Completion;
using engine::Device;
using engine::Handle;

struct {
  int (*create)(const std::int64_t* shape, int dimensions, int device_type, int device_id, int delay, int dtype,
                Handle* array);
  int (*copy)(Handle, Handle*);
  int (*free)(Handle);
  int (*data)(Handle, void**);
  int (*storage_type)(Handle, int*);
} mxnet;

constexpr double kShort = 1e-3;  // seconds

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


bool plain(Handle array, const TensorSpec& spec) {
  int storage = engine::kDense;
  return mxnet.storage_type(array, &storage) == 0 && storage == engine::kDense && ArrayView(array).is(spec) &&
         ArrayView(array).device().type == engine::kCpu;
}

}  // namespace

Arrays::~Arrays() {
  for (Handle array : handles_) mxnet.free(array);
}

bool Arrays::add_same(Handle array) {
  Handle copied;
  if (mxnet.copy(array, &copied) != 0) return false;
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

void direct_runs::connect(const std::string& path) {
  const LibMXNet library(path);
  library.find("MXNDArrayCreateEx64", &mxnet.create);
  library.find("MXShallowCopyNDArray", &mxnet.copy);
  library.find("MXNDArrayFree", &mxnet.free);
  library.find("MXNDArrayGetData", &mxnet.data);
  library.find("MXNDArrayGetStorageType", &mxnet.storage_type);
}

bool direct_runs::all_plain(const std::vector<Handle>& arrays, const std::vector<TensorSpec>& specs) {
  return arrays.size() == specs.size() && std::equal(arrays.begin(), arrays.end(), specs.begin(), plain);
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
                      const std::vector<Handle>& read, Device device) {
  const bool is_long = graph->fastest() > kShort;
  std::vector<Handle> blocked;
  const auto start = [&](const Completion& completion) {
    Run run{graph, holder, {}, {}};
    if (!run.look(inputs, outputs, &blocked) || !UnderWay::begin()) return false;
    runs.fetch_add(1, std::memory_order_relaxed);
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

std::size_t direct_runs::count() { return runs.load(); }

void direct_runs::finish() { UnderWay::finish(); }

}  // namespace ngraph_mxnet
