#include "core/program_module.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "core/binder.h"
#include "core/kernel_table.h"
#include "core/python_runtime.h"
#include "core/validator.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

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

std::vector<SymbolicSpec> to_specs(const py::handle& of) {
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
  made.inputs = to_specs(code["inputs"]);
  made.outputs = to_specs(code["outputs"]);
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
  return py::array_t<std::uint8_t>(static_cast<py::ssize_t>(table.size()), reinterpret_cast<const std::uint8_t*>(table.data()));
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

void define_programs(py::module_& m) {
  py::class_<BoundProgram, std::shared_ptr<BoundProgram>>(m, "BoundProgram", "Kernels to call, in levels.")
      .def(py::init(&make_bound), py::arg("levels"), py::arg("arena_bytes"), py::arg("constants"),
           py::arg("owner") = py::none())
      .def("listed", &listed, "(levels, arena bytes, constants), as the constructor takes them, but without addresses.")
      .def("check", &check, py::arg("input_bytes"), py::arg("output_bytes"), py::arg("prepared_bytes"),
           py::call_guard<GilReleased>(), "Raises ValueError for an instruction that is not such as its kernel declares.");

  py::class_<Program, std::shared_ptr<Program>>(m, "Program", "Instructions, whose sizes may be symbols.")
      .def(py::init(&make_program), py::arg("code"), py::arg("owner") = py::none(),
           "`code` is a Program's dict (package/program.py), with the kernels' addresses.")
      .def("bind", &bind, py::arg("shapes") = py::none(), py::arg("of_file") = false, py::call_guard<GilReleased>(),
           "The BoundProgram for inputs of these shapes, which may be left out where there are no symbols; None where a guard "
           "or a bound does not hold. Of a file, which may ask for anything, it ends in any case, with a ValueError.")
      .def("plan", &plan, py::arg("of_file") = false,
           "How a Program without symbols is bound: the level of each instruction, the offset of each buffer, and bytes of memory.");

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
}

}  // namespace ngraph_mxnet
