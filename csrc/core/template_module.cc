#include "core/template_module.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "core/program_template.h"
#include "core/python_runtime.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

using Shapes = std::vector<std::vector<std::int64_t>>;

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
TemplateInstruction to_instruction(const py::tuple& parts) {
  if (parts.size() != 13) throw py::value_error("an instruction for a range of sizes has 13 parts");
  TemplateInstruction made;
  made.name = parts[0].cast<std::string>();
  made.kernel = reinterpret_cast<Kernel>(parts[1].cast<std::uintptr_t>());
  for (const auto& [space, index, offset] : parts[2].cast<std::vector<std::tuple<int, std::size_t, Slot>>>()) {
    if (space < static_cast<int>(Space::kArena) || space > static_cast<int>(Space::kPrepared)) {
      throw py::value_error("unknown operand space " + std::to_string(space));
    }
    made.operands.push_back({static_cast<Space>(space), index, offset});
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

std::vector<TemplateInstruction> to_instructions(const py::handle& of) {
  std::vector<TemplateInstruction> made;
  for (py::handle each : of) made.push_back(to_instruction(py::reinterpret_borrow<py::tuple>(each)));
  return made;
}

std::vector<TemplateSpec> to_specs(const py::handle& of) {
  std::vector<TemplateSpec> made;
  for (auto& [element, shape] : of.cast<std::vector<std::pair<std::string, std::vector<Slot>>>>()) {
    made.push_back({element, shape});
  }
  return made;
}

std::shared_ptr<ProgramTemplate> make(const py::dict& code, std::shared_ptr<Program> prepare, std::size_t prepared_bytes,
                                      std::vector<std::size_t> weight_inputs, std::vector<std::size_t> weight_bytes,
                                      int threads, const std::string& name, const py::object& cached,
                                      const py::object& owner, bool checked) {
  struct Owned {
    std::vector<AlignedBuffer> copies;
    std::shared_ptr<void> code;
  };
  const auto owned = std::make_shared<Owned>();
  if (!owner.is_none()) owned->code = share(owner);
  TemplateCode made;
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
  made.owner = owned;
  if (weight_bytes.size() != weight_inputs.size()) throw py::value_error("a size for each weight is expected");
  std::vector<std::size_t> input_bytes(made.inputs.size());
  for (std::size_t i = 0; i < weight_inputs.size(); ++i) {
    if (weight_inputs[i] >= input_bytes.size()) throw py::value_error("a weight is none of the inputs");
    input_bytes[weight_inputs[i]] = weight_bytes[i];
  }
  auto preparation = std::make_shared<Preparation>(std::move(prepare), prepared_bytes, std::move(weight_inputs),
                                                   std::move(input_bytes), threads, name, cached_weights(cached));
  return std::make_shared<ProgramTemplate>(std::move(made), std::move(preparation), threads, name, checked);
}

py::tuple listed(const Executable& executable) {
  py::list levels, constants;
  for (const Level& level : executable.program().levels()) {
    py::list made;
    for (const Instruction& i : level) {
      py::list operands;
      for (const Operand& o : i.operands) operands.append(py::make_tuple(static_cast<int>(o.space), o.index, o.offset));
      made.append(py::make_tuple(i.name, operands, i.ints, i.floats, i.tasks, i.origin, i.operations, i.bytes));
    }
    levels.append(made);
  }
  for (const Constant& constant : executable.program().constants()) {
    constants.append(py::bytes(constant.data, constant.bytes));
  }
  return py::make_tuple(levels, executable.program().arena_bytes(), constants);
}

}  // namespace

void define_templates(py::module_& m) {
  py::class_<ProgramTemplate, std::shared_ptr<ProgramTemplate>>(m, "ProgramTemplate", "A Program for a range of sizes.")
      .def(py::init(&make), py::arg("code"), py::arg("prepare").none(true), py::arg("prepared_bytes"),
           py::arg("weight_inputs"), py::arg("weight_bytes"), py::arg("threads"), py::arg("name") = "graph",
           py::arg("cached") = py::none(), py::arg("owner") = py::none(), py::arg("checked") = false,
           "`code` is a TemplateCode's dict, with the kernels' addresses; the rest is as for an Executable.")
      .def("bind", &ProgramTemplate::bind, py::arg("shapes"), py::call_guard<GilReleased>(),
           "The Executable for inputs of these shapes; None where a guard or a bound does not hold.");
  m.def("program_of", &listed, py::arg("executable"),
        "(levels, arena bytes, constants) of an Executable's main Program, as ProgramCode has them, for tests.");
}

}  // namespace ngraph_mxnet
