// Part of `ngraph_mxnet._core` that exposes graphs, Programs and what runs them.
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "core/content_hash.h"
#include "core/executor.h"
#include "core/kernel_table.h"
#include "core/numpy_arrays.h"
#include "core/python_runtime.h"
#include "core/result_watch.h"
#include "core/trace.h"

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

Constant copied(const py::handle& constant, std::vector<AlignedBuffer>* copies) {
  if (!py::isinstance<py::array>(constant)) throw py::type_error("a constant must be a NumPy array");
  const auto array = py::reinterpret_borrow<py::array>(constant);
  if (!(array.flags() & py::array::c_style)) throw py::value_error("a constant must be C-contiguous");
  const AlignedBuffer& copy = copies->emplace_back(array.nbytes());
  std::memcpy(copy.data(), array.data(), array.nbytes());
  return {copy.data(), copy.size()};
}

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

// The address of a kernel in libngraph_kernels.so, which lies beside this extension and is never closed: Programs hold
// addresses in it.
std::uintptr_t kernel_address(const std::string& symbol) {
  static const auto library = [] {
    Dl_info here;
    dladdr(reinterpret_cast<void*>(&kernel_address), &here);
    const std::string_view self = here.dli_fname;
    const std::string path = std::string(self.substr(0, self.rfind('/') + 1)) + "libngraph_kernels.so";
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    return std::pair(handle, handle == nullptr ? "the kernel library does not load: " + std::string(dlerror()) : path);
  }();
  if (library.first == nullptr) throw py::key_error("no kernel '" + symbol + "': " + library.second);
  void* const address = dlsym(library.first, symbol.c_str());
  if (address == nullptr) throw py::key_error("no kernel '" + symbol + "' in " + library.second);
  return reinterpret_cast<std::uintptr_t>(address);
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

// A compiled graph that a Python function runs, on NumPy arrays. The callable gets a list of read-only views, valid
// during the call only, and returns a list of arrays.
class PythonExecutable : public CompiledGraph {
 public:
  PythonExecutable(py::object callable, const SpecArgument& inputs, const SpecArgument& outputs)
      : CompiledGraph(to_specs(inputs), to_specs(outputs)), callable_(share(std::move(callable))) {}

  bool runs_anywhere() const override { return false; }
  void run(const std::vector<InputTensor>& in, const std::vector<char*>& out, ArrayHolder*) override {
    with_gil([&] {
      py::list views;
      for (std::size_t i = 0; i < in.size(); ++i) views.append(view(in[i].data, inputs()[i]));
      const py::object asarray = py::module_::import("numpy").attr("asarray");
      py::list results;
      for (py::handle result : called(*callable_, views)) results.append(called(asarray, result, py::none(), "C"));
      const std::vector<char*> pointers = data_pointers(results, outputs(), "result", false);
      for (std::size_t i = 0; i < out.size(); ++i) {
        if (const std::size_t bytes = outputs()[i].bytes()) std::memcpy(out[i], pointers[i], bytes);
      }
    });
  }

 private:
  std::shared_ptr<py::object> callable_;
};

std::unique_ptr<ResultWatch> make_watch(const std::vector<std::pair<std::uintptr_t, std::uintptr_t>>& given) {
  std::vector<ResultWatch::Result> results;
  for (const auto& [data, writes] : given) {
    results.push_back({reinterpret_cast<const char*>(data), reinterpret_cast<const std::uint64_t*>(writes)});
  }
  return std::make_unique<ResultWatch>(results);
}

std::vector<std::tuple<std::size_t, double, std::uint64_t>> take_events(ResultWatch& watch, double seconds) {
  std::vector<std::tuple<std::size_t, double, std::uint64_t>> found;
  for (const ResultWatch::Event& event : watch.take(seconds)) {
    found.emplace_back(event.result, event.time, event.writes);
  }
  return found;
}

// Lives as long as a program: its constants, and the owner of the kernels' code.
struct Owned {
  std::vector<AlignedBuffer> copies;
  std::shared_ptr<void> code;
};

std::shared_ptr<Owned> owned_with(const py::object& owner) {
  const auto owned = std::make_shared<Owned>();
  if (!owner.is_none()) owned->code = share(owner);
  return owned;
}

Space to_space(int space) {
  if (space < static_cast<int>(Space::kArena) || space > static_cast<int>(Space::kPrepared)) {
    throw py::value_error("unknown operand space " + std::to_string(space));
  }
  return static_cast<Space>(space);
}

Operand to_operand(const py::sequence& parts) {
  const Space space = to_space(parts[0].cast<int>());
  if (parts.size() != 3) throw py::value_error("an operand is (space, index, byte offset)");
  return {space, parts[1].cast<std::size_t>(), parts[2].cast<std::size_t>()};
}

Instruction to_instruction(const py::sequence& parts) {
  if (parts.size() != 6 && parts.size() != 9) {
    throw py::value_error(
        "an instruction is (name, kernel, operands, ints, floats, tasks), or these and (origin, operations, bytes)");
  }
  Instruction instruction;
  instruction.name = parts[0].cast<std::string>();
  instruction.kernel = reinterpret_cast<Kernel>(parts[1].cast<std::uintptr_t>());
  for (py::handle operand : parts[2]) {
    instruction.operands.push_back(to_operand(py::reinterpret_borrow<py::sequence>(operand)));
  }
  instruction.ints = parts[3].cast<std::vector<std::int64_t>>();
  instruction.floats = parts[4].cast<std::vector<double>>();
  instruction.tasks = parts[5].cast<std::int64_t>();
  if (parts.size() == 9) {
    instruction.origin = parts[6].cast<std::string>();
    instruction.operations = parts[7].cast<double>();
    instruction.bytes = parts[8].cast<double>();
  }
  return instruction;
}

std::shared_ptr<BoundProgram> make_bound(const py::sequence& levels, std::size_t arena_bytes,
                                         const py::sequence& constants, const py::object& owner) {
  std::vector<Level> converted;
  for (py::handle level : levels) {
    Level& instructions = converted.emplace_back();
    for (py::handle instruction : level) {
      instructions.push_back(to_instruction(py::reinterpret_borrow<py::sequence>(instruction)));
    }
  }
  const auto owned = owned_with(owner);
  std::vector<Constant> memory;
  for (py::handle constant : constants) memory.push_back(copied(constant, &owned->copies));
  return std::make_shared<BoundProgram>(std::move(converted), arena_bytes, std::move(memory), owned);
}

SizeCode to_sizes(std::size_t symbols, const py::array_t<std::int64_t, py::array::c_style>& steps) {
  if (steps.ndim() != 2 || steps.shape(1) != 5) throw py::value_error("steps of sizes have 5 numbers each");
  std::vector<SizeStep> made;
  const auto at = steps.unchecked<2>();
  for (py::ssize_t i = 0; i < at.shape(0); ++i) {
    made.push_back({static_cast<SizeOp>(at(i, 0)), at(i, 1), at(i, 2), at(i, 3), at(i, 4)});
  }
  return {symbols, std::move(made)};
}

// (name, kernel, operands, ints, floats, tasks, waits, carried, loop, node, origin, operations, bytes)
SymbolicInstruction to_instruction(const py::tuple& parts) {
  if (parts.size() != 13) throw py::value_error("an instruction of a Program has 13 parts");
  SymbolicInstruction made;
  made.name = parts[0].cast<std::string>();
  made.kernel = reinterpret_cast<Kernel>(parts[1].cast<std::uintptr_t>());
  for (const auto& [space, index, offset] : parts[2].cast<std::vector<std::tuple<int, std::size_t, Slot>>>()) {
    made.operands.push_back({to_space(space), index, offset});
  }
  made.ints = parts[3].cast<std::vector<Slot>>();
  made.floats = parts[4].cast<std::vector<double>>();
  made.tasks = parts[5].cast<Slot>();
  made.waits = parts[6].cast<std::vector<std::size_t>>();
  made.carried = parts[7].cast<std::vector<std::size_t>>();
  made.loop = parts[8].cast<std::int64_t>();
  made.node = parts[9].cast<std::int64_t>();
  made.origin = parts[10].cast<std::string>();
  made.operations = parts[11].cast<Slot>();
  made.bytes = parts[12].cast<Slot>();
  return made;
}

std::vector<SymbolicInstruction> to_instructions(const py::handle& of) {
  std::vector<SymbolicInstruction> made;
  for (py::handle each : of) made.push_back(to_instruction(py::reinterpret_borrow<py::tuple>(each)));
  return made;
}

std::vector<SymbolicSpec> to_symbolic_specs(const py::handle& of) {
  std::vector<SymbolicSpec> made;
  for (auto& [element, shape] : of.cast<std::vector<std::pair<std::string, std::vector<Slot>>>>()) {
    made.push_back({element, shape});
  }
  return made;
}

std::shared_ptr<Program> make_program(const py::dict& code, const py::object& owner) {
  const auto owned = owned_with(owner);
  const auto program = std::make_shared<Program>();
  Program& made = *program;
  made.sizes = to_sizes(code["symbols"].cast<std::size_t>(),
                        code["steps"].cast<py::array_t<std::int64_t, py::array::c_style>>());
  for (const auto& [low, high] : code["bounds"].cast<std::vector<std::pair<std::int64_t, std::int64_t>>>()) {
    made.bounds.push_back({low, high});
  }
  if (made.bounds.size() > made.sizes.symbols()) throw py::value_error("more bounds than symbols");
  for (const auto& [slot, value] : code["guards"].cast<std::vector<std::pair<Slot, std::int64_t>>>()) {
    made.guards.push_back({slot, value});
  }
  made.instructions = to_instructions(code["instructions"]);
  made.zeroing = to_instructions(code["zeroing"]);
  for (const auto& [count, index] : code["loops"].cast<std::vector<std::pair<Slot, Slot>>>()) {
    made.loops.push_back({count, index});
  }
  for (const auto& [bytes, region, zeroing] :
       code["buffers"].cast<std::vector<std::tuple<Slot, std::int64_t, std::int64_t>>>()) {
    made.buffers.push_back({bytes, region, zeroing});
  }
  for (py::handle constant : code["constants"]) {
    if (py::isinstance<py::array>(constant)) {
      made.constants.push_back({nullptr, copied(constant, &owned->copies), {}});
      continue;
    }
    const auto [kind, numbers] = constant.cast<std::pair<std::string, std::vector<Slot>>>();
    const TableKind* const table = find_table(kind);
    if (table == nullptr) throw py::value_error("no table is called " + kind);
    made.constants.push_back({table, {nullptr, 0}, numbers});
  }
  made.inputs = to_symbolic_specs(code["inputs"]);
  made.outputs = to_symbolic_specs(code["outputs"]);
  made.branches = code["branches"].cast<int>();
  made.sharing_gain = code["sharing_gain"].cast<std::int64_t>();
  made.wave_bytes = code["wave_bytes"].cast<std::int64_t>();
  made.owner = owned;
  check_program(made);
  return program;
}

// What a function gives for a Program without symbols.
template <class Found>
Found found_alone(std::optional<Found> found) {
  if (!found) throw std::invalid_argument("a Program without symbols has a guard that does not hold");
  return std::move(*found);
}

std::shared_ptr<BoundProgram> bind(const Program& program, const std::optional<Shapes>& shapes, bool of_file) {
  const std::size_t most_steps = of_file ? kStepsOfFiles : kAnySteps;
  if (!shapes) return found_alone(bind_program(program, input_shapes(program), most_steps)).program;
  const std::optional<Bound> bound = bind_program(program, *shapes, most_steps);
  return bound ? bound->program : nullptr;
}

py::dict plan(const Program& program, bool of_file) {
  const Plan plan = found_alone(plan_program(program, input_shapes(program), of_file ? kStepsOfFiles : kAnySteps));
  py::dict told;
  told["levels"] = plan.levels;
  told["offsets"] = plan.offsets;
  told["zeroed"] = plan.zeroed;
  told["arena_bytes"] = plan.arena_bytes;
  told["peak_bytes"] = plan.peak_bytes;
  told["separate_bytes"] = plan.separate_bytes;
  return told;
}

std::shared_ptr<Binder> make_binder(std::shared_ptr<const Program> program, std::shared_ptr<BoundProgram> prepare,
                                    std::size_t prepared_bytes, std::vector<std::size_t> weight_inputs,
                                    const std::vector<std::size_t>& weight_bytes, int threads, const std::string& name,
                                    const py::object& cached, bool checked) {
  if (weight_bytes.size() != weight_inputs.size()) throw py::value_error("a size for each weight is expected");
  std::vector<std::size_t> input_bytes(program->inputs.size());
  for (std::size_t i = 0; i < weight_inputs.size(); ++i) {
    if (weight_inputs[i] >= input_bytes.size()) throw py::value_error("a weight is none of the inputs");
    input_bytes[weight_inputs[i]] = weight_bytes[i];
  }
  auto preparation = std::make_shared<Preparation>(std::move(prepare), prepared_bytes, std::move(weight_inputs),
                                                   std::move(input_bytes), threads, name, cached_weights(cached));
  return std::make_shared<Binder>(std::move(program), std::move(preparation), threads, name, checked);
}

py::array_t<std::uint8_t> make_table(const std::string& kind, const std::vector<std::int64_t>& numbers) {
  const TableKind* const found = find_table(kind);
  if (found == nullptr || found->numbers != numbers.size()) {
    throw py::value_error("no table " + kind + " of " + std::to_string(numbers.size()) + " numbers");
  }
  const AlignedBuffer table = found->make(numbers);
  return py::array_t<std::uint8_t>(static_cast<py::ssize_t>(table.size()),
                                   reinterpret_cast<const std::uint8_t*>(table.data()));
}

py::tuple listed(const std::shared_ptr<BoundProgram>& program) {
  py::list levels, constants;
  for (const Level& level : program->levels()) {
    py::list made;
    for (const Instruction& i : level) {
      py::list operands;
      for (const Operand& o : i.operands) operands.append(py::make_tuple(static_cast<int>(o.space), o.index, o.offset));
      made.append(py::make_tuple(i.name, operands, i.ints, i.floats, i.tasks, i.origin, i.operations, i.bytes));
    }
    levels.append(made);
  }
  const py::object owner = py::cast(program);
  for (const Constant& constant : program->constants()) {
    py::array_t<std::uint8_t> view(constant.bytes, reinterpret_cast<const std::uint8_t*>(constant.data), owner);
    view.attr("setflags")(false);
    constants.append(view);
  }
  return py::make_tuple(levels, program->arena_bytes(), constants);
}

void check(const BoundProgram& program, std::vector<std::size_t> inputs, std::vector<std::size_t> outputs,
           std::size_t prepared_bytes) {
  check_instructions(program, {std::move(inputs), std::move(outputs), prepared_bytes});
}

}  // namespace

void define_core(py::module_& m) {
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
                       std::size_t prepared_bytes, std::vector<std::size_t> weight_inputs, const SpecArgument& inputs,
                       const SpecArgument& outputs, int threads, const std::string& name, const py::object& cached) {
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
      .def_property_readonly(
          "arena_bytes", [](const Executable& self) { return self.program()->arena_bytes(); },
          "Of the memory that a call works in.")
      .def_property_readonly(
          "program", [](const Executable& self) { return std::const_pointer_cast<BoundProgram>(self.program()); })
      .def_property_readonly(
          "prepare_program",
          [](const Executable& self) { return std::const_pointer_cast<BoundProgram>(self.prepare_program()); })
      .def_property_readonly("prepare_runs", &Executable::prepare_runs);

  py::class_<PythonExecutable, CompiledGraph, std::shared_ptr<PythonExecutable>>(
      m, "PythonExecutable", "Runs a Python callable: list of arrays -> list of arrays.")
      .def(py::init<py::object, const SpecArgument&, const SpecArgument&>(), py::arg("callable"), py::arg("inputs"),
           py::arg("outputs"));

  py::class_<BoundProgram, std::shared_ptr<BoundProgram>>(m, "BoundProgram", "Kernels to call, in levels.")
      .def(py::init(&make_bound), py::arg("levels"), py::arg("arena_bytes"), py::arg("constants"),
           py::arg("owner") = py::none())
      .def("listed", &listed, "(levels, arena bytes, constants), as the constructor takes them, but without addresses.")
      .def("check", &check, py::arg("input_bytes"), py::arg("output_bytes"), py::arg("prepared_bytes"),
           py::call_guard<GilReleased>(),
           "Raises ValueError for an instruction that is not such as its kernel declares.");

  py::class_<Program, std::shared_ptr<Program>>(m, "Program", "Instructions, whose sizes may be symbols.")
      .def(py::init(&make_program), py::arg("code"), py::arg("owner") = py::none(),
           "`code` is a Program's dict (program/program.py), with the kernels' addresses.")
      .def("bind", &bind, py::arg("shapes") = py::none(), py::arg("of_file") = false, py::call_guard<GilReleased>(),
           "The BoundProgram for inputs of these shapes, which may be left out where there are no symbols; None where "
           "a guard or a bound does not hold. Of a file, which may ask for anything, it ends in any case, with a "
           "ValueError.")
      .def("plan", &plan, py::arg("of_file") = false,
           "How a Program without symbols is bound: the level of each instruction, the offset of each buffer, and "
           "bytes of memory.");

  py::class_<Binder, std::shared_ptr<Binder>>(m, "Binder", "Binds a Program to the sizes of calls.")
      .def(py::init(&make_binder), py::arg("program"), py::arg("prepare").none(true), py::arg("prepared_bytes"),
           py::arg("weight_inputs"), py::arg("weight_bytes"), py::arg("threads"), py::arg("name") = "graph",
           py::arg("cached") = py::none(), py::arg("checked") = false, "Arguments are as of an Executable.")
      .def("bind", &Binder::bind, py::arg("shapes"), py::call_guard<GilReleased>(),
           "The Executable for inputs of these shapes; None where a guard or a bound does not hold.");
  m.def("table", &make_table, py::arg("kind"), py::arg("numbers"),
        "The bytes of a table that binding makes (TableRecipe in microkernels/tables.py).");
  m.def("kernel_runs", [](const std::string& symbol) { return find_kernel(symbol).runs; }, py::arg("symbol"),
        "Whether the kernel library has this kernel, and this CPU runs it.");

  py::class_<ResultWatch>(m, "ResultWatch",
                          "Tells which results, by the addresses of their memory, are final while graphs still run.")
      .def(
          py::init(&make_watch), py::arg("results"),
          "Of each result the address of its memory, and of a 64-bit number that rises with every write to it, also at "
          "the end of what announces it; 0: there is none.")
      .def("take", &take_events, py::arg("seconds"), py::call_guard<GilReleased>(),
           "[(number of the result, time.monotonic(), how many writes were counted)] of what was announced since the "
           "last call; waits up to so many seconds for something.")
      .def("wake", &ResultWatch::wake, "Lets a `take` that waits return.");

  m.attr("hash_key_bytes") = sizeof(ContentHasher::Key);
  m.def("content_hash128", &hash_content, py::arg("data"), py::arg("key"),
        "16 bytes for the content of a C-contiguous buffer, under a secret, random key of `hash_key_bytes`.");
  m.def("kernel_address", &kernel_address, py::arg("symbol"));
  m.def("cpu_features", &features, "Whether each feature is there, by LLVM's name.");
  PYBIND11_NUMPY_DTYPE(trace::Event, begin, end, tasks, call, label, thread);
  m.def("trace_start", &trace::start, py::arg("events_per_thread"),
        "Forgets what was recorded; from now on each thread keeps its last spans.");
  m.def("trace_stop", &trace::stop);
  m.def("trace_take", &take_trace, "(labels, events, dropped): what was recorded, which is then forgotten.");
  py::module_::import("atexit").attr("register")(py::cpp_function(&end_visits));
}

}  // namespace ngraph_mxnet
