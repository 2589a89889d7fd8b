#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "audit/observer.h"
#include "core/numpy_arrays.h"
#include "core/python_runtime.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

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
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() { give_back(std::move(found_)); }

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

std::vector<InputTensor> tensors_of(const CompiledGraph& graph, const py::sequence& inputs) {
  std::vector<InputTensor> tensors;
  for (char* data : data_pointers(inputs, graph.inputs(), "input", false)) tensors.push_back({data, std::nullopt});
  return tensors;
}

void observe(CompiledGraph& graph, std::shared_ptr<Observer> observer) {
  graph.set_observer([observer = std::move(observer)](CompiledGraph* run, const std::vector<InputTensor>& inputs,
                                                      const std::vector<char*>& outputs, ArrayHolder* holder) {
    observer->run(run, inputs, outputs, holder);
  });
}

void run_unobserved(CompiledGraph& graph, const py::sequence& inputs, const py::sequence& outputs) {
  const std::vector<InputTensor> in = tensors_of(graph, inputs);
  const std::vector<char*> out = data_pointers(outputs, graph.outputs(), "output", true);
  const GilReleased released;
  graph.run(in, out, nullptr);
}

// `after` is called after the instructions of these numbers, which rise, with the arena's address.
void run_steps(Executable& graph, const py::sequence& inputs, const py::sequence& outputs,
               const std::vector<std::size_t>& steps, const py::object& after) {
  const std::vector<InputTensor> in = tensors_of(graph, inputs);
  const std::vector<char*> out = data_pointers(outputs, graph.outputs(), "output", true);
  auto next = steps.begin();
  std::exception_ptr error;
  {
    const GilReleased released;
    graph.run_steps(in, out, [&](std::size_t step, const char* arena) {
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
  const auto found = std::find_if(codes.begin(), codes.end(), [&](const TensorCode& code) { return code.name == *name; });
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
      const py::object raised = py::module_::import("ngraph_mxnet.errors").attr("AuditError");
      PyErr_SetString(raised.ptr(), error.what());
    }
  });

  py::class_<Observer, std::shared_ptr<Observer>>(m, "Observer", "Records what calls of graphs read and give.")
      .def(py::init(&make), py::arg("graph"), py::arg("weights"), py::arg("first"), py::arg("every"), py::arg("low"),
           py::arg("high"), py::arg("infinite"), py::arg("explain").none(true), py::arg("threads"),
           "See csrc/audit/observer.h. `explain` is given the CompiledGraph and read-only views of its inputs, valid during the "
           "call, the number of an output and its statistics, and returns the text of the error; without it there are no "
           "bounds.")
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
      .def("tensor_values", &Taken::tensor_values, py::arg("run"), py::arg("begin"), py::arg("end"),
           "Of the tensors likewise: run, id of the call, place, min, max, mean, norm, NaN, infinite, zeros, denormals, "
           "hash.");
  m.def("statistics_and_hash", &statistics_and_hash, py::arg("array"), py::arg("element"),
        py::arg("code").none(true) = py::none(),
        "((min, max, mean, norm, NaN, infinite, zeros, denormals), 16 bytes) of a C-contiguous array; NaN where there are "
        "no finite elements. By the fastest of tensor_codes(), or the one named.");
  m.attr("comparable_hash_version") = ComparableHasher::kVersion;
  m.def("tensor_codes", [] {
    std::vector<std::string> names;
    for (const TensorCode& code : tensor_codes()) names.emplace_back(code.name);
    return names;
  }, "What can look at tensors on this CPU, the fastest first, by its instructions.");
}

}  // namespace ngraph_mxnet
