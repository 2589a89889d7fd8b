// Part of `ngraph_mxnet._core` that exposes compiled files.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "artefact/artefact.h"
#include "artefact/artefact_file.h"
#include "core/bound_program.h"
#include "core/content_hash.h"
#include "core/executor.h"
#include "core/fork_safety.h"
#include "core/prepared_sets.h"
#include "core/program_runner.h"
#include "core/python_runtime.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kIdleArenas = 8;

// Returns the buffer by which PreparedSets remembers whether weights are the file's.
const PreparedSets::Buffer& verdict(bool are_of_file) {
  static const auto* const verdicts = new PreparedSets::Buffer[2]{std::make_shared<const AlignedBuffer>(0),
                                                                  std::make_shared<const AlignedBuffer>(0)};
  return verdicts[are_of_file];
}

// Runs the file's program as long as the weights are, by all their content, those that the file was made of; when that
// is looked at again `PreparedSets` says. With other weights it runs what `compile` makes.
class PackagedGraph : public CompiledGraph {
 public:
  // Gets the input that is not the file's. Called on any thread, without locks, possibly by several at once.
  using Compile = std::function<std::shared_ptr<CompiledGraph>(std::size_t input)>;

  // Which input is a weight, and the check of its content (docs/artefact.md).
  struct Weight {
    std::size_t input;
    Hash128 check;
  };

  // `places`: which of `inputs` each input of the program is. Throws std::invalid_argument where the program does not
  // fit.
  PackagedGraph(std::shared_ptr<const BoundProgram> program, std::vector<std::size_t> places,
                std::vector<Weight> weights, std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs,
                int threads, const std::string& name, Compile compile)
      : CompiledGraph(std::move(inputs), std::move(outputs)),
        runner_(program, threads, kIdleArenas, "run " + name, "call"),
        places_(std::move(places)),
        weights_(std::move(weights)),
        compile_(std::move(compile)) {
    const auto input = [&](std::size_t place) -> const TensorSpec& {
      if (place >= this->inputs().size()) {
        throw std::invalid_argument("input " + std::to_string(place) + " does not exist");
      }
      return this->inputs()[place];
    };
    Surroundings around{{}, {}, 0};
    for (std::size_t place : places_) around.input_bytes.push_back(input(place).bytes());
    for (const TensorSpec& output : this->outputs()) around.output_bytes.push_back(output.bytes());
    check_operands(*program, around);
    std::vector<std::size_t> numbers, bytes;
    for (const Weight& weight : weights_) {
      numbers.push_back(weight.input);
      bytes.push_back(input(weight.input).bytes());
    }
    if (!weights_.empty()) {
      sets_ = PreparedSets::shared(text_of(weights_), std::move(numbers), std::move(bytes), threads, check_of);
    }
  }

  void run(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs, ArrayHolder* holder) override {
    if (sets_ != nullptr) {
      const auto look = [&](const std::vector<InputTensor>&, const PreparedSets::Hashes& hashes) {
        return verdict(are_of_file(hashes));
      };
      if (sets_->get(inputs, holder, look) != verdict(true)) return compiled().run(inputs, outputs, holder);
    }
    Bindings bindings;
    for (std::size_t place : places_) bindings.inputs.push_back(inputs[place].data);
    bindings.outputs = outputs;
    runner_.run(bindings);
  }

  void set_graph(std::uint64_t graph) override {
    graph_ = graph;
    runner_.set_graph(graph);
  }

  int threads() const override { return runner_.threads(); }

 private:
  static std::string text_of(const std::vector<Weight>& weights) {
    std::string text = "weights of a file";
    for (const Weight& weight : weights) {
      text.append(reinterpret_cast<const char*>(&weight.check), sizeof weight.check);
    }
    return text;
  }

  bool are_of_file(const PreparedSets::Hashes& hashes) {
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (hashes[i] == weights_[i].check) continue;
      differing_ = weights_[i].input;
      return false;
    }
    return true;
  }

  CompiledGraph& compiled() {
    {
      const std::lock_guard<ForkSafeMutex> lock(mutex_);
      if (compiled_ != nullptr) return *compiled_;
    }
    std::shared_ptr<CompiledGraph> made = compile_(differing_);  // waits for the GIL, which none may who holds a lock
    made->set_graph(graph_);
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    if (compiled_ == nullptr) compiled_ = std::move(made);
    return *compiled_;
  }

  ProgramRunner runner_;
  std::vector<std::size_t> places_;
  std::vector<Weight> weights_;
  std::shared_ptr<PreparedSets> sets_;
  std::uint64_t graph_ = 0;
  Compile compile_;
  std::atomic<std::size_t> differing_{0};
  ForkSafeMutex mutex_{Rank::kPackagedGraph};
  std::shared_ptr<CompiledGraph> compiled_;
};

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
      .def(py::init(&load), py::arg("path"),
           "Raises OSError where it can't be read, ValueError for what does not run here.")
      .def_readonly("metadata", &Artefact::metadata, "JSON.")
      .def_readonly("instruction_set", &Artefact::instruction_set)
      .def_property_readonly(
          "shape_sets",
          [](const Artefact& artefact) {
            py::list sets;
            for (const ShapeSet& set : artefact.shape_sets) {
              sets.append(py::make_tuple(ports(set.inputs), ports(set.outputs)));
            }
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
