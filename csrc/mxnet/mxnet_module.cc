// Part of `ngraph_mxnet._core` that exposes what goes on in libmxnet.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "core/python_runtime.h"
#include "mxnet/array_view.h"
#include "mxnet/compile_cache.h"
#include "mxnet/direct.h"
#include "mxnet/direct_runs.h"
#include "mxnet/engine.h"
#include "mxnet/libmxnet.h"
#include "mxnet/mxnet_writers.h"
#include "mxnet/tape.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

// Of a cached op's inputs those that stay, and for the others which argument of a call each is.
class DirectCall {
 public:
  DirectCall(std::uintptr_t op, const std::vector<std::uintptr_t>& arrays,
             const std::vector<std::optional<std::size_t>>& arguments)
      : op_(reinterpret_cast<engine::Handle>(op)) {
    for (std::uintptr_t array : arrays) arrays_.push_back(reinterpret_cast<engine::Handle>(array));
    if (arguments.size() != arrays_.size()) throw py::value_error("as many arguments as arrays are expected");
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i]) arguments_.emplace_back(i, *arguments[i]);
    }
  }

  py::object call(const py::args& handles) const {
    std::vector<engine::Handle> inputs = arrays_;
    for (const auto& [input, argument] : arguments_) {
      if (argument >= handles.size()) throw py::index_error("argument " + std::to_string(argument) + " is missing");
      inputs[input] = reinterpret_cast<engine::Handle>(handles[argument].cast<std::uintptr_t>());
    }
    std::vector<engine::Handle> outputs;
    {
      const GilReleased released;
      outputs = direct::call(op_, inputs);
    }
    if (outputs.empty()) return py::none();
    py::list made;
    for (engine::Handle output : outputs) made.append(reinterpret_cast<std::uintptr_t>(output));
    return made;
  }

 private:
  engine::Handle op_;
  std::vector<engine::Handle> arrays_;
  std::vector<std::pair<std::size_t, std::size_t>> arguments_;
};

std::optional<std::pair<std::uintptr_t, std::uintptr_t>> watched_array(std::uintptr_t array) {
  const ArrayView view(reinterpret_cast<engine::Handle>(array));
  if (!direct::possible() || !view.plain() || view.data() == nullptr) return std::nullopt;
  return std::pair(reinterpret_cast<std::uintptr_t>(view.data()), reinterpret_cast<std::uintptr_t>(view.version_at()));
}

py::dict cache_info() {
  const CompileCache::Info info = CompileCache::instance().info();
  py::dict result;
  result["entries"] = info.entries;
  result["hits"] = info.hits;
  result["misses"] = info.misses;
  result["bound"] = info.bound;
  return result;
}

py::list compiled_regions() {
  std::vector<std::pair<CompileKey, CompileCache::Result>> contents;
  {
    const GilReleased released;
    contents = CompileCache::instance().contents();
  }
  py::list regions;
  for (const auto& [key, graph] : contents) {
    regions.append(py::make_tuple(key.graph_json, key.shapes, key.types, key.attrs, graph->calls(), graph->threads()));
  }
  return regions;
}

Replacements mxnet_replacements() {
  auto all = mxnet_writers::replacements();
  for (const Replacements& more : {direct::replacements(), tape::replacements()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace

void define_mxnet(py::module_& m) {
  py::class_<ArrayHolder, std::shared_ptr<ArrayHolder>>(
      m, "ArrayHolder",
      "Who keeps the arrays alive that ops of ours are run on. Ops that are made within `with` are its.")
      .def(py::init<>())
      .def("__enter__", [](const std::shared_ptr<ArrayHolder>& holder) { ArrayHolder::enter(holder); })
      .def("__exit__", [](const ArrayHolder&, const py::args&) { ArrayHolder::leave(); })
      .def("hold", &mxnet_writers::hold, py::arg("arrays"), py::call_guard<GilReleased>(),
           "From now on it holds the NDArrays of these handles.")
      .def("release", &mxnet_writers::release, py::arg("arrays"), py::call_guard<GilReleased>(),
           "Before it lets go of them.")
      .def_property_readonly("ops", &ArrayHolder::ops, "How many ops were made for it.");

  py::class_<DirectCall>(m, "DirectCall", "Calls of a cached op of `direct_cached_op` with the same parameters.")
      .def(py::init<std::uintptr_t, const std::vector<std::uintptr_t>&,
                    const std::vector<std::optional<std::size_t>>&>(),
           py::arg("op"), py::arg("arrays"), py::arg("arguments"),
           "Handles of the op's inputs, and for those that each call brings which of its arguments it is.")
      .def("call", &DirectCall::call,
           "Takes handles of arrays. Handles of the outputs, which are the caller's to free; None: nothing was done.");

  py::class_<BoundGraph>(m, "BoundGraph", "A graph on NDArrays, which runs as an operator of MXNet's engine.")
      .def(py::init<std::shared_ptr<CompiledGraph>, const std::vector<std::uintptr_t>&,
                    const std::vector<std::uintptr_t>&, bool, bool>(),
           py::arg("graph"), py::arg("inputs"), py::arg("outputs"), py::arg("in_place") = false,
           py::arg("given") = false,
           "Handles of arrays, in the graph's order. `in_place`: it may write an output over an input of the same "
           "handle. `given`: its first input is no array but what `run` is given.")
      .def_property_readonly("possible", &BoundGraph::possible, "Whether it can run on these arrays.")
      .def(
          "run",
          [](const BoundGraph& self, const py::bytes& given, bool here, bool profiled) {
            std::string copied = given;
            const GilReleased unlocked;
            return self.run(std::move(copied), here, profiled);
          },
          py::arg("given") = py::bytes(), py::arg("here") = false, py::arg("profiled") = false,
          "Returns at once, or with `here` when a short run is done; MXNet's engine orders it among others. False: "
          "nothing was done, as while the profiler runs, unless `profiled`.");

  m.def("connect_mxnet", &connect_libmxnet, py::arg("path"), "Finds libmxnet, which is loaded from there.");
  m.def("mxnet_replacements", &mxnet_replacements,
        "[(name, address)]: the functions of libmxnet's C interface that are to be called by way of ours.");
  m.def("touch", [](const std::vector<std::uintptr_t>& arrays) {
          std::vector<engine::Handle> handles;
          for (std::uintptr_t array : arrays) handles.push_back(reinterpret_cast<engine::Handle>(array));
          engine::check(engine::touch(handles));
        }, py::arg("arrays"), py::call_guard<GilReleased>(),
        "The versions of these NDArrays, by their handles, rise behind what was pushed before: something that MXNet "
        "counts as a reader has written to them.");
  m.def("set_bulk", &mxnet_writers::set_bulk, py::arg("operators"), py::call_guard<GilReleased>(),
        "MXEngineSetBulkSize.");
  m.def("watched_array", &watched_array, py::arg("array"),
        "What ResultWatch takes of an NDArray, by its handle; None unless it lies dense and row-major in the CPU's "
        "memory. Nothing may be under way on the array.");

  m.def("compile_cache_info", &cache_info);
  m.def(
      "compiled_regions", &compiled_regions,
      "(JSON, input shapes, MXNet's input types, attributes, calls, threads) of each that is compiled now, the latest "
      "first.");
  m.def("limit_compile_cache", [](std::size_t shapes) { CompileCache::instance().limit(shapes); },
        py::arg("shapes"), py::call_guard<GilReleased>(),
        "How many shapes of each graph the cache keeps from now on.");
  m.def("clear_compile_cache", [] { CompileCache::instance().clear(); },
        py::call_guard<GilReleased>());

  m.def("direct_executor", &direct::add_executor, py::arg("executor"), py::arg("holder"), py::arg("inputs"),
        py::arg("outputs"), py::call_guard<GilReleased>(),
        "The executor of this handle, whose one op was made for `holder`, runs without MXNet's op from now on. Handles "
        "of the op's arrays.");
  m.def("direct_cached_op", &direct::add_cached_op, py::arg("op"), py::arg("holder"), py::arg("inputs"),
        py::arg("outputs"), py::call_guard<GilReleased>(),
        "As `direct_executor`, for a cached op. Which of the graph's inputs each of the op's is, and which of the op's "
        "outputs each of the graph's.");
  m.def("direct_calls", &direct_runs::count, "How many calls ran without MXNet's op in this process.");
  m.def("may_be_recorded", [](std::uintptr_t array) {
          return !ArrayView::usable() || ArrayView(reinterpret_cast<engine::Handle>(array)).may_be_recorded();
        }, py::arg("array"),
        "Of an NDArray, by its handle: False only if no gradient is attached to it and autograd has not recorded it.");
  m.def("copy_now", &mxnet_writers::copy_now, py::arg("source"), py::arg("target"), py::call_guard<GilReleased>(),
        "Copies one NDArray to another, by their handles, if that can be done at once; whether it was.");
  m.def("finish_direct_calls", &direct_runs::finish, py::call_guard<GilReleased>(), "Waits for them.");
  m.def("op_calls", &CompiledGraph::all_calls, "How often an NGraphSubgraphOp ran in this process.");
  m.attr("built_for_mxnet") = NGRAPH_BUILT_FOR_MXNET;
}

}  // namespace ngraph_mxnet
