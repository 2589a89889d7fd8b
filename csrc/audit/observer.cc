// Records what calls of a compiled graph read and gave; and stops those whose numbers are out of bounds. The part of
// `ngraph_mxnet._core` that exposes it.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pthread.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "audit/tensor_statistics.h"
#include "core/executor.h"
#include "core/fork_safety.h"
#include "core/numpy_arrays.h"
#include "core/python_runtime.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

// One tensor of a call. `place`: the graph's inputs, then its outputs, are numbered.
struct Observation {
  std::uint64_t call;  // see ObservedCall
  std::uint32_t place;
  TensorContent content;
};

// A call, or the weights that later calls read.
struct ObservedCall {
  std::uint64_t id;      // counts in this process, from 1 on
  std::uint64_t graph;
  std::uint64_t number;  // of the graph's calls, from 0 on
  std::uint64_t weights;  // the id of those that a call read; 0: there are none
  std::int64_t begin;    // nanoseconds since the epoch
  std::int64_t seconds;  // nanoseconds: of the call, without what it takes to observe it
  std::int64_t thread;
  std::int64_t resident, peak;  // of weights: the process's memory in bytes, after the first call with them
  std::uint8_t are_weights;
};

struct Observations {
  std::vector<ObservedCall> calls;
  std::vector<Observation> tensors;
  std::uint64_t dropped;  // calls, for nobody took what was recorded
};

constexpr std::size_t kMostTensors = std::size_t{1} << 20;  // that wait to be taken
constexpr std::size_t kMostSpare = std::size_t{1} << 17;    // for which memory is kept when they were taken

std::atomic<std::uint64_t> next_id{1};

// Never destroyed: MXNet's threads may still run while the process exits.
struct Queue {
  ForkSafeMutex mutex{Rank::kObservations};
  Observations waiting{}, spare{};  // memory that was written to before costs no page faults
};

Queue& queue() {
  static auto* const made = [] {
    pthread_atfork(nullptr, nullptr, [] { queue().waiting = {}; });  // the parent has it
    return new Queue;
  }();
  return *made;
}

// Loads the memory behind the vector into the cache, for as many more.
template <class Element>
void prefetch_end(const std::vector<Element>& of, std::size_t count) {
  constexpr std::size_t kLine = 64;
  const char* const end = reinterpret_cast<const char*>(of.data() + of.size());
  for (std::size_t at = 0; at < count * sizeof(Element); at += kLine) __builtin_prefetch(end + at, 1);
}

void put(const Observations& found) {
  Queue& to = queue();
  const std::lock_guard<ForkSafeMutex> lock(to.mutex);
  Observations& waiting = to.waiting;
  if (waiting.tensors.size() + found.tensors.size() > kMostTensors) {
    waiting.dropped += found.calls.size();
    return;
  }
  waiting.calls.insert(waiting.calls.end(), found.calls.begin(), found.calls.end());
  waiting.tensors.insert(waiting.tensors.end(), found.tensors.begin(), found.tensors.end());
  prefetch_end(waiting.calls, found.calls.size());  // for the next call, whose unlocking would wait for memory
  prefetch_end(waiting.tensors, found.tensors.size());
}

template <class Clock>
std::int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::int64_t this_thread() {
  thread_local const auto number = static_cast<std::int64_t>(syscall(SYS_gettid));
  return number;
}

// Bytes, of a line of the process's status.
std::int64_t memory(const std::string& line) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kilobytes = 0;
    if (word == line && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

// The id of one more.
std::uint64_t new_observation() { return next_id.fetch_add(1); }

// Returns what this process has recorded since the last call, and forgets it. A forked child begins with nothing.
Observations take_observations() {
  Queue& from = queue();
  const std::lock_guard<ForkSafeMutex> lock(from.mutex);
  return std::exchange(from.waiting, std::exchange(from.spare, {}));
}

// Takes back observations that are no longer needed: their memory serves again, unless it is too large.
void give_back(Observations taken) {
  if (taken.tensors.capacity() > kMostSpare || taken.calls.capacity() > kMostSpare) return;
  taken.calls.clear();
  taken.tensors.clear();
  taken.dropped = 0;
  Queue& to = queue();
  const std::lock_guard<ForkSafeMutex> lock(to.mutex);
  to.spare = std::move(taken);
}

// A call gave numbers that are out of bounds.
class OutOfBounds : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Observer {
 public:
  // The bounds of the elements of float tensors. NaN is out of all bounds.
  struct Bounds {
    double low, high;
    bool infinite;  // whether infinite numbers are within
  };

  // Which calls are recorded: the first so many, or every so many, if that is not 0.
  struct Selection {
    std::uint64_t first, every;
  };

  // The text of the error when the output of this number is out of bounds.
  using Explain = std::function<std::string(CompiledGraph* graph, const std::vector<InputTensor>& inputs,
                                            std::size_t output, const TensorStatistics& statistics)>;

  // `weights`: which inputs are such, ascending. `explain` is empty where there are no bounds.
  Observer(std::uint64_t graph, std::vector<std::size_t> weights, Selection selection, Bounds bounds, Explain explain,
           int threads)
      : graph_(graph),
        weights_(std::move(weights)),
        selection_(selection),
        bounds_(bounds),
        explain_(std::move(explain)),
        threads_(threads) {}

  // Runs it on these tensors. Throws OutOfBounds.
  void run(CompiledGraph* graph, const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs,
           ArrayHolder* holder) {
    const std::uint64_t number = calls_.fetch_add(1, std::memory_order_relaxed);
    const bool stopped = stopped_.load(std::memory_order_relaxed), chosen = !stopped && is_chosen(number);
    if (stopped || (!chosen && !explain_)) return graph->run(inputs, outputs, holder);

    Observations found{};
    ObservedCall call{};
    if (chosen) {  // before it runs, for a step of training writes over what it reads
      call.weights = weights_of(*graph, inputs, holder, &found);
      call.id = new_observation();
      call.graph = graph_;
      call.number = number;
      call.thread = this_thread();
      found.tensors.reserve(found.tensors.size() + inputs.size() - weights_.size() + outputs.size());
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (std::binary_search(weights_.begin(), weights_.end(), i)) continue;
        found.tensors.push_back(
            {call.id, static_cast<std::uint32_t>(i), content_of(graph->inputs()[i], inputs[i].data)});
      }
    }
    call.begin = nanoseconds<std::chrono::system_clock>();
    const std::int64_t begin = nanoseconds<std::chrono::steady_clock>();
    graph->run(inputs, outputs, holder);
    call.seconds = nanoseconds<std::chrono::steady_clock>() - begin;
    for (ObservedCall& weights : found.calls) {
      weights.resident = memory("VmRSS:");
      weights.peak = memory("VmHWM:");
    }
    std::string error;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const TensorSpec& spec = graph->outputs()[i];
      const bool bounded = explain_ && error.empty() && spec.element->numpy_kind == 'f';
      if (!chosen && !bounded) continue;
      TensorStatistics statistics;
      if (chosen) {
        const TensorContent content = content_of(spec, outputs[i]);
        found.tensors.push_back({call.id, static_cast<std::uint32_t>(inputs.size() + i), content});
        statistics = content.statistics;
      } else {
        statistics = statistics_of(spec, outputs[i]);
      }
      const bool outside = statistics.nans > 0 || (statistics.infinities > 0 && !bounds_.infinite) ||
                           statistics.min < bounds_.low || statistics.max > bounds_.high;
      if (bounded && outside) error = explain_(graph, inputs, i, statistics);
    }
    if (chosen) {
      found.calls.push_back(call);
      put(found);
    }
    if (!error.empty()) throw OutOfBounds(error);
  }

  // From now on it only runs.
  void stop() { stopped_.store(true); }

 private:
  bool is_chosen(std::uint64_t number) const {
    return number < selection_.first || (selection_.every > 0 && number % selection_.every == 0);
  }

  PreparedSets& sets(const CompiledGraph& graph) {
    if (generation_.load(std::memory_order_acquire) == fork_generation()) return *sets_;
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    if (generation_.load(std::memory_order_relaxed) != fork_generation()) {
      std::vector<std::size_t> bytes;
      for (std::size_t weight : weights_) bytes.push_back(graph.inputs()[weight].bytes());
      sets_ = std::make_shared<PreparedSets>(weights_, std::move(bytes), threads_, comparable_hash);
      generation_.store(fork_generation(), std::memory_order_release);
    }
    return *sets_;
  }

  // They are recorded once for each content, as PreparedSets tells it.
  std::uint64_t weights_of(const CompiledGraph& graph, const std::vector<InputTensor>& inputs, ArrayHolder* holder,
                           Observations* found) {
    if (weights_.empty()) return 0;
    const auto record = [&](const std::vector<InputTensor>& fixed, const PreparedSets::Hashes& hashes) {
      ObservedCall weights{};
      weights.id = new_observation();
      weights.graph = graph_;
      weights.begin = nanoseconds<std::chrono::system_clock>();
      weights.thread = this_thread();
      weights.are_weights = 1;
      for (std::size_t i = 0; i < weights_.size(); ++i) {
        const std::size_t at = weights_[i];
        found->tensors.push_back({weights.id, static_cast<std::uint32_t>(at),
                                  {statistics_of(graph.inputs()[at], fixed[at].data), hashes[i]}});
      }
      found->calls.push_back(weights);
      auto id = std::make_shared<AlignedBuffer>(sizeof weights.id);
      std::memcpy(id->data(), &weights.id, sizeof weights.id);
      return id;
    };
    const PreparedSets::Buffer id = sets(graph).get(inputs, holder, std::cref(record));
    std::uint64_t weights;
    std::memcpy(&weights, id->data(), sizeof weights);
    return weights;
  }

  std::uint64_t graph_;
  std::vector<std::size_t> weights_;
  Selection selection_;
  Bounds bounds_;
  Explain explain_;
  int threads_;
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> calls_{0};
  ForkSafeMutex mutex_{Rank::kObserver};
  std::shared_ptr<PreparedSets> sets_;  // in place of prepared weights, the ids of those that were recorded
  // How many forks led to the process that made `sets_`: a child makes its own, for what its parent recorded is not the
  // child's. Where it is this process's number, nobody writes to `sets_` any more.
  std::atomic<std::uint64_t> generation_{~std::uint64_t{0}};
};

// (min, max, mean, norm, NaN, infinite, zeros, denormals)
py::tuple listed(const TensorStatistics& of) {
  return py::make_tuple(of.min, of.max, of.mean, of.norm, of.nans, of.infinities, of.zeros, of.denormals);
}

py::bytes bytes_of(const Hash128& hash) { return {reinterpret_cast<const char*>(&hash), sizeof hash}; }

// A list of numbers and bytes, made by CPython's own functions: while it grows, other threads wait for Python's lock.
class Values {
 public:
  explicit Values(std::size_t most) : list_(most) {}

  template <class... Types>
  void add(const Types&... values) {
    (put(made(values)), ...);
  }

  py::list take() {
    if (PyList_SetSlice(list_.ptr(), count_, PyList_GET_SIZE(list_.ptr()), nullptr) != 0) throw py::error_already_set();
    return std::move(list_);
  }

 private:
  static PyObject* made(double value) { return PyFloat_FromDouble(value); }
  static PyObject* made(std::int64_t value) { return PyLong_FromLongLong(value); }
  static PyObject* made(std::uint64_t value) { return PyLong_FromUnsignedLongLong(value); }
  static PyObject* made(std::uint32_t value) { return PyLong_FromUnsignedLong(value); }
  static PyObject* made(const Hash128& value) {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&value), sizeof value);
  }

  void put(PyObject* value) {
    if (value == nullptr) throw py::error_already_set();
    PyList_SET_ITEM(list_.ptr(), count_++, value);
  }

  py::list list_;
  Py_ssize_t count_ = 0;
};

py::tuple row_of(const ObservedCall& c) {
  return py::make_tuple(c.id, c.graph, c.number, c.weights, static_cast<double>(c.begin) * 1e-9,
                        static_cast<double>(c.seconds) * 1e-9, c.thread, c.resident, c.peak, c.are_weights != 0);
}

// Its memory serves again when it goes.
class Taken {
 public:
  Taken() : found_(take_observations()) {}
  ~Taken() { give_back(std::move(found_)); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  std::size_t calls() const { return found_.calls.size(); }
  std::size_t tensors() const { return found_.tensors.size(); }
  std::uint64_t dropped() const { return found_.dropped; }

  std::set<std::uint64_t> graphs() const {
    std::set<std::uint64_t> numbers;
    for (const ObservedCall& call : found_.calls) numbers.insert(call.graph);
    return numbers;
  }

  py::list weights() const {
    py::list all;
    std::unordered_map<std::uint64_t, py::list> tensors;  // by the id of the weights
    for (const ObservedCall& call : found_.calls) {
      if (call.are_weights) all.append(py::make_tuple(row_of(call), tensors[call.id]));
    }
    for (const Observation& each : found_.tensors) {
      const auto of = tensors.find(each.call);
      if (of == tensors.end()) continue;
      of->second.append(
          py::make_tuple(each.call, each.place, listed(each.content.statistics), bytes_of(each.content.hash)));
    }
    return all;
  }

  py::list call_values(std::int64_t run, std::size_t begin, std::size_t end) const {
    constexpr std::size_t kColumns = 8;
    Values values(kColumns * (std::min(end, calls()) - std::min(begin, calls())));
    for (std::size_t i = begin; i < std::min(end, calls()); ++i) {
      const ObservedCall& c = found_.calls[i];
      if (c.are_weights) continue;
      values.add(run, c.id, c.graph, c.number, c.weights, static_cast<double>(c.begin) * 1e-9,
                 static_cast<double>(c.seconds) * 1e-9, c.thread);
    }
    return values.take();
  }

  py::list tensor_values(std::int64_t run, std::size_t begin, std::size_t end) const {
    constexpr std::size_t kColumns = 12;
    Values values(kColumns * (std::min(end, tensors()) - std::min(begin, tensors())));
    for (std::size_t i = begin; i < std::min(end, tensors()); ++i) {
      const Observation& each = found_.tensors[i];
      const TensorStatistics& of = each.content.statistics;
      values.add(run, each.call, each.place, of.min, of.max, of.mean, of.norm, of.nans, of.infinities, of.zeros,
                 of.denormals, each.content.hash);
    }
    return values.take();
  }

 private:
  Observations found_;
};

std::shared_ptr<Observer> make(std::uint64_t graph, std::vector<std::size_t> weights, std::uint64_t first,
                               std::uint64_t every, double low, double high, bool infinite, const py::object& explain,
                               int threads) {
  Observer::Explain told;
  if (!explain.is_none()) {
    told = [call = share(explain)](CompiledGraph* graph, const std::vector<InputTensor>& inputs, std::size_t output,
                                   const TensorStatistics& statistics) {
      return with_gil([&] {
        py::list views;
        for (std::size_t i = 0; i < inputs.size(); ++i) views.append(view(inputs[i].data, graph->inputs()[i]));
        const py::object borrowed = py::cast(graph, py::return_value_policy::reference);
        return called(*call, borrowed, views, output, listed(statistics)).cast<std::string>();
      });
    };
  }
  return std::make_shared<Observer>(graph, std::move(weights), Observer::Selection{first, every},
                                    Observer::Bounds{low, high, infinite}, std::move(told), threads);
}

void observe(CompiledGraph& graph, std::shared_ptr<Observer> observer) {
  graph.set_observer([observer = std::move(observer)](CompiledGraph* run, const std::vector<InputTensor>& inputs,
                                                      const std::vector<char*>& outputs, ArrayHolder* holder) {
    observer->run(run, inputs, outputs, holder);
  });
}

void run_unobserved(CompiledGraph& graph, const py::sequence& inputs, const py::sequence& outputs) {
  const CallArguments call(graph, inputs, outputs);
  const GilReleased released;
  graph.run(call.inputs, call.outputs, nullptr);
}

// `after` is called after the instructions of these numbers, which rise, with the arena's address.
void run_steps(Executable& graph, const py::sequence& inputs, const py::sequence& outputs,
               const std::vector<std::size_t>& steps, const py::object& after) {
  const CallArguments call(graph, inputs, outputs);
  auto next = steps.begin();
  std::exception_ptr error;
  {
    const GilReleased released;
    graph.run_steps(call.inputs, call.outputs, [&](std::size_t step, const char* arena) {
      if (error || next == steps.end() || *next != step) return;
      ++next;
      const GilHeld gil;
      try {
        called(after, step, reinterpret_cast<std::uintptr_t>(arena));
      } catch (...) {
        error = std::current_exception();
      }
    });
  }
  if (error) std::rethrow_exception(error);
}

const TensorCode& code_named(const std::optional<std::string>& name) {
  const std::vector<TensorCode>& codes = tensor_codes();
  if (!name) return codes.front();
  const auto found =
      std::find_if(codes.begin(), codes.end(), [&](const TensorCode& code) { return code.name == *name; });
  if (found == codes.end()) throw py::value_error("this CPU has no code named " + *name);
  return *found;
}

py::tuple statistics_and_hash(const py::array& array, const std::string& element,
                              const std::optional<std::string>& code) {
  const TensorSpec spec(element, {static_cast<std::int64_t>(array.size())});
  if (!(array.flags() & py::array::c_style) || array.dtype().kind() != spec.element->numpy_kind ||
      static_cast<std::size_t>(array.itemsize()) != spec.element->size) {
    throw py::value_error("expected a C-contiguous array of " + element);
  }
  const TensorCode& with = code_named(code);
  TensorContent content;
  {
    const GilReleased released;
    content = content_of(spec, array.data(), with);
  }
  return py::make_tuple(listed(content.statistics), bytes_of(content.hash));
}

}  // namespace

void define_observers(py::module_& m) {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const OutOfBounds& error) {
      const py::object raised = py::module_::import("ngraph_mxnet.base.errors").attr("AuditError");
      PyErr_SetString(raised.ptr(), error.what());
    }
  });

  py::class_<Observer, std::shared_ptr<Observer>>(m, "Observer", "Records what calls of graphs read and give.")
      .def(py::init(&make), py::arg("graph"), py::arg("weights"), py::arg("first"), py::arg("every"), py::arg("low"),
           py::arg("high"), py::arg("infinite"), py::arg("explain").none(true), py::arg("threads"),
           "See csrc/audit/observer.cc. `explain` is given the CompiledGraph and read-only views of its inputs, valid "
           "during the call, the number of an output and its statistics, and returns the text of the error; without it "
           "there are no bounds.")
      .def("stop", &Observer::stop, "From now on nothing is recorded and there are no bounds.");

  m.def("observe", &observe, py::arg("graph"), py::arg("observer"),
        "Before the first call of the CompiledGraph: its calls go by way of the observer.");
  m.def("run_unobserved", &run_unobserved, py::arg("graph"), py::arg("inputs"), py::arg("outputs"),
        "As CompiledGraph.run, past the observer.");
  m.def("run_steps", &run_steps, py::arg("graph"), py::arg("inputs"), py::arg("outputs"), py::arg("steps"),
        py::arg("after"),
        "Runs an Executable one instruction after the other, on one thread; `after` is called after those of these "
        "numbers, which rise, with the number and the arena's address.");
  m.def("new_observation", &new_observation, "The id of a call that Python records.");
  py::class_<Taken>(m, "TakenObservations", "What was recorded, which is then forgotten.")
      .def(py::init<>(), py::call_guard<GilReleased>())
      .def_property_readonly("calls", &Taken::calls, "How many, those of weights among them.")
      .def_property_readonly("tensors", &Taken::tensors, "Of how many tensors.")
      .def_property_readonly("dropped", &Taken::dropped, "How many calls nobody took in time.")
      .def_property_readonly("graphs", &Taken::graphs, "The numbers of the graphs that were called.")
      .def("weights", &Taken::weights,
           "[((id, graph, number, 0, seconds since the epoch, seconds, thread, resident, peak, True), [(id, place, "
           "statistics, hash)])], for each content of a graph's weights.")
      .def("call_values", &Taken::call_values, py::arg("run"), py::arg("begin"), py::arg("end"),
           "Of the calls from one number up to another, weights left out, one after the other: run, id, graph, number, "
           "id of the weights or 0, seconds since the epoch, seconds, thread.")
      .def(
          "tensor_values", &Taken::tensor_values, py::arg("run"), py::arg("begin"), py::arg("end"),
          "Of the tensors likewise: run, id of the call, place, min, max, mean, norm, NaN, infinite, zeros, denormals, "
          "hash.");
  m.def("statistics_and_hash", &statistics_and_hash, py::arg("array"), py::arg("element"),
        py::arg("code").none(true) = py::none(),
        "((min, max, mean, norm, NaN, infinite, zeros, denormals), 16 bytes) of a C-contiguous array; NaN where there "
        "are no finite elements. By the fastest of tensor_codes(), or the one named.");
  m.attr("comparable_hash_version") = ComparableHasher::kVersion;
  m.def("tensor_codes", [] {
    std::vector<std::string> names;
    for (const TensorCode& code : tensor_codes()) names.emplace_back(code.name);
    return names;
  }, "What can look at tensors on this CPU, the fastest first, by its instructions.");
}

}  // namespace ngraph_mxnet
