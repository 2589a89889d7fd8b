#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "artefact/artefact.h"
#include "artefact/packaged_graph.h"
#include "core/executor.h"
#include "core/python_runtime.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

std::shared_ptr<Artefact> load(const std::string& path) {
  try {
    const GilReleased released;
    return std::make_shared<Artefact>(load_artefact(path));
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
    throw py::error_already_set();
  } catch (const std::runtime_error& error) {
    throw py::value_error(error.what());
  }
}

py::list ports(const std::vector<NamedSpec>& specs) {
  py::list made;
  for (const NamedSpec& each : specs) {
    made.append(py::make_tuple(each.name, each.spec.element->name, py::tuple(py::cast(each.spec.shape))));
  }
  return made;
}

std::vector<PackagedGraph::Weight> to_weights(const std::vector<std::pair<std::size_t, py::bytes>>& told) {
  std::vector<PackagedGraph::Weight> weights;
  for (const auto& [input, check] : told) {
    const std::string_view bytes(check);
    PackagedGraph::Weight weight{input, {}};
    if (bytes.size() != sizeof weight.check) throw py::value_error("a check has 16 bytes");
    std::memcpy(&weight.check, bytes.data(), sizeof weight.check);
    weights.push_back(weight);
  }
  return weights;
}

std::shared_ptr<PackagedGraph> make_graph(const Artefact& artefact, std::size_t set, std::vector<std::size_t> places,
                                          const std::vector<std::pair<std::size_t, py::bytes>>& weights,
                                          const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& inputs,
                                          int threads, const std::string& name, py::object compile) {
  const ShapeSet& shapes = artefact.shape_sets.at(set);
  if (places.size() != shapes.inputs.size()) throw py::value_error("a place for each input of the program is missing");
  std::vector<TensorSpec> input_specs, output_specs;
  for (const auto& [element, shape] : inputs) input_specs.emplace_back(element, shape);
  for (const NamedSpec& output : shapes.outputs) output_specs.push_back(output.spec);
  const auto again = [call = share(std::move(compile))](std::size_t input) {
    return with_gil([&] { return called(*call, input).cast<std::shared_ptr<CompiledGraph>>(); });
  };
  return std::make_shared<PackagedGraph>(shapes.program, std::move(places), to_weights(weights), std::move(input_specs),
                                         std::move(output_specs), threads, name, again);
}

std::shared_ptr<Executable> executable_of(ShapeSet set, int threads) {
  std::vector<TensorSpec> inputs, outputs;
  for (NamedSpec& each : set.inputs) inputs.push_back(std::move(each.spec));
  for (NamedSpec& each : set.outputs) outputs.push_back(std::move(each.spec));
  auto nothing = std::make_shared<Preparation>(nullptr, 0, std::vector<std::size_t>{},
                                               std::vector<std::size_t>(inputs.size()), threads, "graph",
                                               CachedWeightsOption{});
  return std::make_shared<Executable>(std::move(set.program), std::move(nothing), std::move(inputs), std::move(outputs),
                                      threads, "graph");
}

std::shared_ptr<Executable> bind(const Artefact& artefact, const Shapes& shapes, int threads) {
  for (const ShapeSet& set : artefact.shape_sets) {
    if (input_shapes(set) == shapes) return executable_of(set, threads);
  }
  return executable_of(bind_range(artefact.ranges, artefact.shape_sets, shapes), threads);
}

py::list range_ports(const std::vector<Port>& ports, const ProgramSet& set) {
  py::list made;
  for (const Port& each : ports) made.append(py::make_tuple(each.name, each.element->name, range_str(each, set)));
  return made;
}

}  // namespace

void define_artefacts(py::module_& m) {
  py::class_<Artefact, std::shared_ptr<Artefact>>(m, "Artefact", "A compiled file (docs/artefact.md), for this CPU.")
      .def(py::init(&load), py::arg("path"), "Raises OSError where it can't be read, ValueError for what does not run here.")
      .def_readonly("metadata", &Artefact::metadata, "JSON.")
      .def_readonly("instruction_set", &Artefact::instruction_set)
      .def_property_readonly(
          "shape_sets",
          [](const Artefact& artefact) {
            py::list sets;
            for (const ShapeSet& set : artefact.shape_sets) sets.append(py::make_tuple(ports(set.inputs), ports(set.outputs)));
            return sets;
          },
          "For each set ([(name, element, shape)] of the inputs, the same of the outputs).")
      .def_property_readonly(
          "ranges",
          [](const Artefact& artefact) {
            py::list made;
            for (const ProgramSet& set : artefact.ranges) {
              made.append(py::make_tuple(range_ports(set.inputs, set), range_ports(set.outputs, set)));
            }
            return made;
          },
          "For each range ([(name, element, sizes as a text for people)] of the inputs, the same of the outputs).")
      .def("bind", &bind, py::arg("shapes"), py::arg("threads"), py::call_guard<GilReleased>(),
           "The Executable for inputs of these shapes. Raises ValueError that says what does not fit.");

  py::class_<PackagedGraph, CompiledGraph, std::shared_ptr<PackagedGraph>>(m, "PackagedGraph",
                                                                           "Runs a set of a compiled file.")
      .def(py::init(&make_graph), py::arg("artefact"), py::arg("set"), py::arg("places"), py::arg("weights"),
           py::arg("inputs"), py::arg("threads"), py::arg("name"), py::arg("compile"),
           "`places`: which of `inputs` each of the program's is. `weights`: (input, check of the file's content). "
           "`compile`: gets the number of an input that is another weight, makes the CompiledGraph for such.");
}

}  // namespace ngraph_mxnet
