// Recorded calls of Gluon blocks: the forward half of a training step, and a node on autograd's tape. The part of
// `ngraph_mxnet._core` that exposes them.
#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/gil_safe_call_once.h>
#include <pybind11/stl.h>

#include "core/fork_safety.h"
#include "core/python_runtime.h"
#include "mxnet/array_view.h"
#include "mxnet/direct.h"
#include "mxnet/libmxnet.h"
#include "mxnet/operators.h"
#include "mxnet/recorded_steps.h"
#include "mxnet/tape.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

using engine::Handle;

// Returns true if this thread is in training mode, or false if in predict mode. Returns nothing if the thread does not
// record, or MXNet fails.
std::optional<bool> recording_mode() {
  bool records = false, trains = false;
  if (mxnet.is_recording(&records) != 0 || !records || mxnet.is_training(&trains) != 0) return std::nullopt;
  return trains;
}

class RecordedCalls {
 public:
  explicit RecordedCalls(std::shared_ptr<RecordedSteps> steps) : steps_(std::move(steps)) {}

  RecordedSteps& steps() const { return *steps_; }

  // Takes the step that was taken. The outputs, which are the caller's then; none: nothing was done, and the step is
  // given back, for nobody records, the profiler is on or an argument is another than expected; where it is `checked`,
  // also if one is recorded that the plan does not record, or the other way round. Throws std::runtime_error.
  std::vector<Handle> call(int step, const std::vector<Handle>& arguments, bool checked) {
    std::unique_ptr<Arrays> made;
    std::shared_ptr<const Variables> found;
    try {
      if (!direct::profiles() && recording_mode() && (!checked || steps_->records_alike(arguments))) {
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

 private:
  std::shared_ptr<const Variables> variables() {
    std::vector<Handle> parameters;
    for (const Source& source : steps_->plan().recorded) {
      if (source.kind == Source::kParameter) parameters.push_back(steps_->parameter(source.index));
    }
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto same = [](Handle one, Handle other) { return ArrayView(one).node() == ArrayView(other).node(); };
    if (variables_ == nullptr || !variables_->known() ||
        !std::equal(parameters.begin(), parameters.end(), variables_->arrays().begin(), same)) {
      std::vector<TensorSpec> specs;
      for (std::size_t i = 0; i < steps_->plan().recorded.size(); ++i) {
        if (steps_->plan().recorded[i].kind == Source::kParameter) specs.push_back(steps_->backward().outputs()[i]);
      }
      variables_ = tape::variables_of(parameters, specs);
    }
    return variables_;
  }

  const std::shared_ptr<RecordedSteps> steps_;
  ForkSafeMutex mutex_{Rank::kRecordedCalls};  // of the next
  std::shared_ptr<const Variables> variables_;  // of the latest call
};

using Sources = std::vector<std::pair<int, std::size_t>>;

std::vector<Source> to_sources(const Sources& given) {
  std::vector<Source> sources;
  for (const auto& [kind, index] : given) {
    if (kind < Source::kParameter || kind > Source::kHead) {
      throw py::value_error("no kind of source: " + std::to_string(kind));
    }
    sources.push_back({static_cast<Source::Kind>(kind), index});
  }
  return sources;
}

// A statistic's source, the step's array of the batch's, the momentum, and which of the recorded it depends on.
using MovedGiven = std::tuple<std::pair<int, std::size_t>, std::size_t, float, std::vector<std::size_t>>;

std::shared_ptr<RecordedCalls> make(std::shared_ptr<CompiledGraph> forward, std::shared_ptr<CompiledGraph> backward,
                                    const Sources& forward_inputs, const Sources& backward_inputs, std::size_t outputs,
                                    const Sources& kept, const Sources& recorded,
                                    const std::vector<std::uintptr_t>& parameters,
                                    const std::vector<std::uintptr_t>& ones, const std::vector<MovedGiven>& moved) {
  RecordedPlan plan{to_sources(forward_inputs), to_sources(backward_inputs), outputs, to_sources(kept),
                    to_sources(recorded), {}};
  for (const auto& [moving, batch, momentum, of] : moved) {
    plan.moved.push_back({to_sources({moving}).front(), batch, momentum, of});
  }
  return std::make_shared<RecordedCalls>(
      std::make_shared<RecordedSteps>(std::move(forward), std::move(backward), std::move(plan), parameters, ones));
}

bool move_given(const std::vector<std::uintptr_t>& moving, const std::vector<std::uintptr_t>& batch,
                const std::vector<float>& momenta) {
  std::vector<MovingStatistic> statistics;
  for (std::size_t i = 0; i < moving.size(); ++i) {
    statistics.push_back({reinterpret_cast<Handle>(moving[i]), reinterpret_cast<Handle>(batch.at(i)),
                          momenta.at(i)});
  }
  return statistics.empty() || move_statistics(statistics, ArrayView(statistics.front().moving).device());
}

// A step that was taken: it is given back unless a call takes it over.
class TakenStep {
 public:
  TakenStep(std::shared_ptr<RecordedCalls> calls, int step) : calls_(std::move(calls)), step_(step) {}
  ~TakenStep() {
    if (step_ >= 0) calls_->steps().give_back(step_);
  }
  TakenStep(const TakenStep&) = delete;
  TakenStep& operator=(const TakenStep&) = delete;

  int number() const { return step_; }
  int take_over() { return std::exchange(step_, -1); }

 private:
  std::shared_ptr<RecordedCalls> calls_;
  int step_;
};

std::unique_ptr<TakenStep> take(const std::shared_ptr<RecordedCalls>& self) {
  const int step = self->steps().take();
  return step < 0 ? nullptr : std::make_unique<TakenStep>(self, step);
}

// An array of this class, NDArray or one derived from it, that owns the handle. No line of Python runs meanwhile, so
// that no signal can part the two.
py::object owner_of(Handle handle, const py::object& array_type) {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<py::object> storage;
  const py::object& pointer = storage.call_once_and_store_result([]() -> py::object {
    return py::module_::import("ctypes").attr("c_void_p");
  }).get_stored();
  auto* type = reinterpret_cast<PyTypeObject*>(array_type.ptr());
  auto array = py::reinterpret_steal<py::object>(type->tp_new(type, py::tuple().ptr(), nullptr));
  if (!array) throw py::error_already_set();
  array.attr("handle") = pointer(reinterpret_cast<std::uintptr_t>(handle));
  array.attr("writable") = true;
  return array;
}

py::object call(RecordedCalls& self, TakenStep& taken, bool checked, const py::object& array_type,
                const py::args& handles) {
  std::vector<Handle> arguments, outputs;
  for (const auto& handle : handles) arguments.push_back(reinterpret_cast<Handle>(handle.cast<std::uintptr_t>()));
  {
    const GilReleased released;
    outputs = self.call(taken.take_over(), arguments, checked);
  }
  if (outputs.empty()) return py::none();
  py::list made;
  for (Handle output : outputs) made.append(owner_of(output, array_type));
  return std::move(made);
}

// The operators as (op, attributes, inputs, count of outputs), where an input is (is a leaf, index, shape or None); then
// values, leaves, which of these are wanted, and heads.
py::tuple description_of(const LinkDescription& link) {
  const auto types = [](const std::vector<TensorSpec>& specs) {
    py::list all;
    for (const TensorSpec& spec : specs) all.append(py::make_tuple(spec.element->name, spec.shape));
    return all;
  };
  py::list operators;
  for (const LinkDescription::Operator& op : link.operators) {
    py::list inputs;
    for (const LinkDescription::Input& input : op.inputs) {
      inputs.append(py::make_tuple(input.is_leaf, input.index,
                                   input.is_reshaped ? py::object(py::cast(input.shape)) : py::object(py::none())));
    }
    operators.append(py::make_tuple(reinterpret_cast<std::uintptr_t>(op.op), op.attributes, inputs, op.outputs));
  }
  return py::make_tuple(operators, types(link.values), types(link.leaves), link.wanted, link.heads);
}

py::list missing_links(const std::vector<std::uintptr_t>& heads) {
  std::vector<OperatorsSeen::Keyed> found;
  {
    const GilReleased released;
    std::vector<Handle> handles;
    for (std::uintptr_t head : heads) handles.push_back(reinterpret_cast<Handle>(head));
    found = OperatorsSeen::all().take();
    for (LinkDescription& link : tape::missing_links(handles)) {
      std::string key = link.key();
      found.emplace_back(std::move(key), std::move(link));
    }
  }
  py::list all;
  for (const auto& [key, link] : found) all.append(py::make_tuple(py::bytes(key), description_of(link)));
  return all;
}

// The operator's key, or nothing where a program was given, or refused.
std::optional<py::bytes> missing_operator(std::uintptr_t op,
                                          const std::vector<std::pair<std::string, std::string>>& attributes,
                                          const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& inputs) {
  std::vector<TensorSpec> specs;
  for (const auto& [element, shape] : inputs) specs.emplace_back(element, shape);
  const std::string key = operator_key(reinterpret_cast<Handle>(op), attributes, specs);
  if (links::find(key) != nullptr) return std::nullopt;
  return py::bytes(key);
}

Handle handle(std::uintptr_t array) { return reinterpret_cast<Handle>(array); }

}  // namespace

void define_recorded(py::module_& m) {
  py::class_<TakenStep>(m, "TakenStep", "Given back when it is dropped, unless a call has taken it over.")
      .def_property_readonly("number", &TakenStep::number);
  py::class_<RecordedCalls, std::shared_ptr<RecordedCalls>>(
      m, "RecordedCalls",
      "Calls of a block under autograd.record: both halves, on NDArrays, and the nodes on MXNet's tape.")
      .def(py::init(&make), py::arg("forward"), py::arg("backward"), py::arg("forward_inputs"),
           py::arg("backward_inputs"), py::arg("outputs"), py::arg("kept"), py::arg("recorded"), py::arg("parameters"),
           py::arg("ones"), py::arg("moved"),
           "As RecordedPlan in csrc/mxnet/recorded_steps.h; arrays by their handles.")
      .def(
          "add",
          [](const RecordedCalls& self, const std::vector<std::uintptr_t>& arrays,
             const std::vector<std::uintptr_t>& marks) { return self.steps().add(arrays, marks); },
          py::arg("arrays"), py::arg("marks"), py::call_guard<GilReleased>(),
          "One step more, which is free; False: an array is of another type than the halves want.")
      .def(
          "set_predicting",
          [](const RecordedCalls& self, std::shared_ptr<CompiledGraph> graph, const Sources& inputs) {
            self.steps().set_predicting(std::move(graph), to_sources(inputs));
          },
          py::arg("graph"), py::arg("inputs"), "What goes back in predict mode: the gradients, of these sources.")
      .def("take", &take, "A TakenStep that was free; None: there is none.")
      .def("call", &call, py::arg("step"), py::arg("checked"), py::arg("array_type"),
           "Takes handles of arrays. `checked`: not where gradients by arguments are wanted of others than at first. "
           "The outputs, arrays of that class; None: nothing was done, and the step is free again.");
  m.def("recording_mode", &recording_mode, "Whether this thread is in training mode; None: it does not record.");
  m.def("is_any_recorded", &tape::is_any, "Whether any call can still be gone back through.");
  m.def("is_any_moving", &tape::is_any_moving, "Whether any such call moves statistics when it is gone back through.");
  m.def("runs_past_mxnet", &direct::possible,
        "Whether arrays may be read and written past MXNet: not with its naive engine.");
  m.def(
      "move_statistics", &move_given, py::arg("moving"), py::arg("batch"), py::arg("momenta"),
      py::call_guard<GilReleased>(),
      "Pushes moving * momentum + batch * (1 - momentum) for float32 arrays, by their handles. Whether it was pushed.");
  m.def("is_ours", [](std::uintptr_t array) { return tape::is_ours(handle(array)); }, py::arg("array"),
        "Whether an NDArray, by its handle, comes from a recorded call that can still be gone back through.");
  m.def("is_known", [](std::uintptr_t array) { return tape::is_known(handle(array)); }, py::arg("array"),
        "Whether an NDArray, by its handle, is a variable, or comes from a recorded call or operator that a backward "
        "pass of ours may go through.");
  m.def("forget_node", [](std::uintptr_t array) {
          if (direct::possible()) ArrayView::forget_node(handle(array));
        }, py::arg("array"), "Takes an NDArray, by its handle, off autograd's tape.");
  m.def("missing_links", &missing_links, py::arg("heads"),
        "[(key, description)] of the operators between recorded calls on the way back from these arrays, whose "
        "gradients `add_link` has not told, and of operators without heads that were called often off the tape: "
        "LinkDescription in csrc/mxnet/short_way.h.");
  m.def("missing_operator", &missing_operator, py::arg("op"), py::arg("attributes"), py::arg("inputs"),
        "The key of an operator of a link, of inputs of these types, whose results `add_link` has not told; else None.");
  m.def("add_link", &links::add, py::arg("key"), py::arg("graph").none(true), py::arg("sources"),
        "The compiled gradients of a link, or results of an operator, and (kind, index) of each of its inputs; None: "
        "MXNet computes them.");
  m.def("short_ways", &tape::short_ways, "How many backward passes went past MXNet's in this process.");
}

}  // namespace ngraph_mxnet
