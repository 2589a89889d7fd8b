// The Python module `ngraph_mxnet._core`; docs/formats.md describes what it exposes.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "artefact/artefact_module.h"
#include "audit/observer_module.h"
#include "core/content_hash.h"
#include "core/cpu_features.h"
#include "core/executor.h"
#include "core/kernel_library.h"
#include "core/numpy_arrays.h"
#include "core/program_module.h"
#include "core/python_executable.h"
#include "core/python_runtime.h"
#include "core/trace.h"
#include "distributed/peer_watch_module.h"
#include "mxnet/array_view.h"
#include "mxnet/block_lookups.h"
#include "mxnet/compile_cache.h"
#include "mxnet/copies.h"
#include "mxnet/direct.h"
#include "mxnet/direct_runs.h"
#include "mxnet/engine.h"
#include "mxnet/libmxnet.h"
#include "mxnet/mxnet_writers.h"
#include "mxnet/pushes.h"
#include "mxnet/recorded.h"
#include "mxnet/recorded_module.h"
#include "mxnet/result_watch_module.h"
#include "mxnet/tape.h"
#include "mxnet/variables.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

using SpecArgument = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

std::vector<TensorSpec> to_specs(const SpecArgument& argument) {
  std::vector<TensorSpec> specs;
  for (const auto& [element, shape] : argument) specs.emplace_back(element, shape);
  return specs;
}

SpecArgument from_specs(const std::vector<TensorSpec>& specs) {
  SpecArgument argument;
  for (const TensorSpec& spec : specs) argument.emplace_back(spec.element->name, spec.shape);
  return argument;
}

}  // namespace

Constant copied(const py::handle& constant, std::vector<AlignedBuffer>* copies) {
  if (!py::isinstance<py::array>(constant)) throw py::type_error("a constant must be a NumPy array");
  const auto array = py::reinterpret_borrow<py::array>(constant);
  if (!(array.flags() & py::array::c_style)) throw py::value_error("a constant must be C-contiguous");
  const AlignedBuffer& copy = copies->emplace_back(array.nbytes());
  std::memcpy(copy.data(), array.data(), array.nbytes());
  return {copy.data(), copy.size()};
}

namespace {

// Nobody counts the versions of NumPy arrays.
std::vector<InputTensor> unversioned(const std::vector<char*>& pointers) {
  std::vector<InputTensor> tensors;
  tensors.reserve(pointers.size());
  for (char* pointer : pointers) tensors.push_back({pointer, std::nullopt});
  return tensors;
}

struct CallArguments {
  std::vector<InputTensor> inputs;
  std::vector<char*> outputs;

  CallArguments(const CompiledGraph& graph, const py::sequence& in, const py::sequence& out)
      : inputs(unversioned(data_pointers(in, graph.inputs(), "input", false))),
        outputs(data_pointers(out, graph.outputs(), "output", true)) {}
};

void run(CompiledGraph& graph, const py::sequence& inputs, const py::sequence& outputs) {
  const CallArguments call(graph, inputs, outputs);
  const GilReleased released;
  graph.observed_run(call.inputs, call.outputs, nullptr);
}

py::object call(CompiledGraph& graph, const py::args& arrays) {
  std::vector<char*> in, out;
  if (!fitting_pointers(arrays, graph.inputs(), &in)) return py::none();
  py::list results = new_arrays(graph.outputs(), &out);
  {
    const GilReleased released;
    graph.observed_run(unversioned(in), out, nullptr);
  }
  return results;
}

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
      outputs = pushes::call(op_, inputs);
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

std::vector<std::pair<std::string, double>> profile(Executable& graph, const py::sequence& inputs,
                                                    const py::sequence& outputs) {
  const CallArguments call(graph, inputs, outputs);
  const GilReleased released;
  return graph.profile(call.inputs, call.outputs);
}

py::dict features() {
  py::dict result;
  // To ask the CPU takes tens of microseconds in a virtual machine.
  static const auto found = cpu_features();
  for (const auto& [name, there] : found) result[py::str(name)] = there;
  return result;
}

std::uintptr_t address(const std::string& symbol) {
  try {
    return kernel_address(symbol);
  } catch (const std::out_of_range& error) {
    throw py::key_error(error.what());
  }
}

ContentHasher::Key hash_key(const py::bytes& key) {
  const std::string_view bytes(key);
  ContentHasher::Key words;
  if (bytes.size() != sizeof words) {
    throw py::value_error("a key of " + std::to_string(bytes.size()) + " bytes, expected " +
                          std::to_string(sizeof words));
  }
  std::memcpy(words.data(), bytes.data(), sizeof words);
  return words;
}

py::bytes hash_content(const py::buffer& data, const py::bytes& key) {
  const py::buffer_info memory = data.request();
  std::size_t stride = memory.itemsize;
  for (std::size_t axis = memory.shape.size(); axis-- > 0; stride *= memory.shape[axis]) {
    if (memory.shape[axis] > 1 && memory.strides[axis] != static_cast<py::ssize_t>(stride)) {
      throw py::value_error("the memory is not C-contiguous; hash numpy.ascontiguousarray of it");
    }
  }
  const Hash128 hash = ContentHasher(hash_key(key))(memory.ptr, memory.size * memory.itemsize);
  return {reinterpret_cast<const char*>(&hash), sizeof hash};
}

}  // namespace

CachedWeightsOption cached_weights(const py::object& cached) {
  if (cached.is_none()) return {};
  CachedWeightsOption option;
  option.prefix = cached.attr("prefix").cast<std::string>();
  option.key = hash_key(cached.attr("key"));
  option.seal = [call = share(cached.attr("seal"))](const std::string& text) {
    std::string seal;
    with_gil([&] { seal = called(*call, py::bytes(text)).cast<std::string>(); });
    return seal;
  };
  option.on_save = [call = share(cached.attr("on_save"))] { with_gil([&] { called(*call); }); };
  return option;
}

namespace {

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

py::tuple take_trace() {
  const trace::Contents contents = trace::take();
  py::list labels;
  for (const trace::Label& label : contents.labels) {
    labels.append(
        py::make_tuple(label.name, label.category, label.origin, label.operations, label.bytes, label.tasks));
  }
  return py::make_tuple(labels, py::array_t<trace::Event>(contents.events.size(), contents.events.data()),
                        contents.dropped);
}

Replacements mxnet_replacements() {
  auto all = mxnet_writers::replacements();
  for (const Replacements& more : {pushes::replacements(), direct::replacements(), tape::replacements(), variables::replacements()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

void define(py::module_& m) {
  py::class_<CompiledGraph, std::shared_ptr<CompiledGraph>>(m, "CompiledGraph",
                                                            "What runs a graph, whichever way.")
      .def("run", &run, py::arg("inputs"), py::arg("outputs"),
           "Runs once, without the GIL, on C-contiguous arrays of exactly the declared types.")
      .def("call", &call,
           "New arrays with the results, if the arguments fit the inputs as they are; else None, and nothing was done.")
      .def_property_readonly("inputs", [](const CompiledGraph& graph) { return from_specs(graph.inputs()); })
      .def_property_readonly("outputs", [](const CompiledGraph& graph) { return from_specs(graph.outputs()); })
      .def_property_readonly("threads", &CompiledGraph::threads, "As many as a run asks for, as far as is known.");

  py::class_<Executable, CompiledGraph, std::shared_ptr<Executable>>(m, "Executable", "Runs Programs.")
      .def(py::init([](std::shared_ptr<BoundProgram> main, std::shared_ptr<BoundProgram> prepare,
                       std::size_t prepared_bytes, std::vector<std::size_t> weight_inputs,
                       const SpecArgument& inputs, const SpecArgument& outputs, int threads,
                       const std::string& name, const py::object& cached) {
             std::vector<TensorSpec> in = to_specs(inputs);
             auto preparation = std::make_shared<Preparation>(std::move(prepare), prepared_bytes,
                                                              std::move(weight_inputs), bytes_of(in), threads, name,
                                                              cached_weights(cached));
             return std::make_shared<Executable>(std::move(main), std::move(preparation), std::move(in),
                                                 to_specs(outputs), threads, name);
           }),
           py::arg("main"), py::arg("prepare").none(true), py::arg("prepared_bytes"), py::arg("weight_inputs"),
           py::arg("inputs"), py::arg("outputs"), py::arg("threads"), py::arg("name") = "graph",
           py::arg("cached") = py::none(),
           "Prepared weights are kept in files as `cached` says, if given: its attributes are `prefix`, `key`, `seal` "
           "and `on_save`, as in csrc/core/cached_weights.h.")
      .def("profile", &profile, py::arg("inputs"), py::arg("outputs"),
           "Runs the instructions one by one; [(name, seconds)].")
      .def_property_readonly("arena_bytes", [](const Executable& self) { return self.program()->arena_bytes(); },
                             "Of the memory that a call works in.")
      .def_property_readonly("program",
                             [](const Executable& self) { return std::const_pointer_cast<BoundProgram>(self.program()); })
      .def_property_readonly("prepare_program",
                             [](const Executable& self) { return std::const_pointer_cast<BoundProgram>(self.prepare_program()); })
      .def_property_readonly("prepare_runs", &Executable::prepare_runs);

  py::class_<PythonExecutable, CompiledGraph, std::shared_ptr<PythonExecutable>>(
      m, "PythonExecutable", "Runs a Python callable: list of arrays -> list of arrays.")
      .def(py::init([](py::object callable, const SpecArgument& inputs, const SpecArgument& outputs) {
             return std::make_shared<PythonExecutable>(std::move(callable), to_specs(inputs), to_specs(outputs));
           }),
           py::arg("callable"), py::arg("inputs"), py::arg("outputs"));

  define_artefacts(m);
  define_programs(m);
  define_recorded(m);
  define_block_lookups(m);
  define_result_watch(m);
  define_observers(m);
  define_peer_watch(m);

  py::class_<ArrayHolder, std::shared_ptr<ArrayHolder>>(
      m, "ArrayHolder", "Who keeps the arrays alive that ops of ours are run on. Ops that are made within `with` are its.")
      .def(py::init<>())
      .def("__enter__", [](const std::shared_ptr<ArrayHolder>& holder) { ArrayHolder::enter(holder); })
      .def("__exit__", [](const ArrayHolder&, const py::args&) { ArrayHolder::leave(); })
      .def("hold", &mxnet_writers::hold, py::arg("arrays"), py::call_guard<GilReleased>(),
           "From now on it holds the NDArrays of these handles.")
      .def("release", &mxnet_writers::release, py::arg("arrays"), py::call_guard<GilReleased>(),
           "Before it lets go of them.")
      .def_property_readonly("ops", &ArrayHolder::ops,
                             "How many ops were made for it.");

  py::class_<DirectCall>(m, "DirectCall", "Calls of a cached op of `direct_cached_op` with the same parameters.")
      .def(py::init<std::uintptr_t, const std::vector<std::uintptr_t>&, const std::vector<std::optional<std::size_t>>&>(),
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
      .def("run", [](const BoundGraph& self, const py::bytes& given, bool here, bool profiled) {
             std::string copied = given;
             const GilReleased unlocked;
             return self.run(std::move(copied), here, profiled);
           }, py::arg("given") = py::bytes(), py::arg("here") = false, py::arg("profiled") = false,
           "Returns at once, or with `here` when a short run is done; MXNet's engine orders it among others. False: nothing was done, "
           "as while the profiler runs, unless `profiled`.");

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
  m.attr("hash_key_bytes") = sizeof(ContentHasher::Key);
  m.def("content_hash128", &hash_content, py::arg("data"), py::arg("key"),
        "16 bytes for the content of a C-contiguous buffer, under a secret, random key of `hash_key_bytes`.");
  m.def("kernel_address", &address, py::arg("symbol"));
  m.def("cpu_features", &features, "Whether each feature is there, by LLVM's name.");
  m.def("compile_cache_info", &cache_info);
  m.def("compiled_regions", &compiled_regions,
        "(JSON, input shapes, MXNet's input types, attributes, calls, threads) of each that is compiled now, the latest "
        "first.");
  m.def("limit_compile_cache", [](std::size_t shapes) { CompileCache::instance().limit(shapes); },
        py::arg("shapes"), py::call_guard<GilReleased>(),
        "How many shapes of each graph the cache keeps from now on.");
  m.def("clear_compile_cache", [] { CompileCache::instance().clear(); },
        py::call_guard<GilReleased>());
  PYBIND11_NUMPY_DTYPE(trace::Event, begin, end, tasks, call, label, thread);
  m.def("trace_start", &trace::start, py::arg("events_per_thread"),
        "Forgets what was recorded; from now on each thread keeps its last spans.");
  m.def("trace_stop", &trace::stop);
  m.def("trace_take", &take_trace, "(labels, events, dropped): what was recorded, which is then forgotten.");
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
  m.def("copy_now", &copies::copy_now, py::arg("source"), py::arg("target"), py::call_guard<GilReleased>(),
        "Copies one NDArray to another, by their handles, if that can be done at once; whether it was.");
  m.def("finish_direct_calls", &direct_runs::finish, py::call_guard<GilReleased>(), "Waits for them.");
  m.def("op_calls", &CompiledGraph::all_calls, "How often an NGraphSubgraphOp ran in this process.");
  py::module_::import("atexit").attr("register")(py::cpp_function(&end_visits));
  m.attr("built_for_mxnet") = NGRAPH_BUILT_FOR_MXNET;
}

}  // namespace
}  // namespace ngraph_mxnet

PYBIND11_MODULE(_core, m) { ngraph_mxnet::define(m); }
