#include "artefact/program_sets.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

namespace ngraph_mxnet {
namespace {

// True if the size `size` of the range may be `value`, whatever the other sizes are.
bool may_be(const ProgramSet& set, const std::string& size, std::int64_t value) {
  for (const Symbol& symbol : set.symbols) {
    if (symbol.name == size) return value >= symbol.bounds.low && value <= symbol.bounds.high;
  }
  return size == std::to_string(value) || size.find_first_not_of("0123456789") != std::string::npos;
}

bool may_be(const ProgramSet& set, const Port& port, const std::vector<std::int64_t>& shape) {
  if (port.sizes.size() != shape.size()) return false;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (!may_be(set, port.sizes[axis], shape[axis])) return false;
  }
  return true;
}

std::vector<NamedSpec> named(const std::vector<Port>& ports, std::vector<TensorSpec> specs) {
  std::vector<NamedSpec> made;
  for (std::size_t i = 0; i < ports.size(); ++i) made.push_back({ports[i].name, std::move(specs[i])});
  return made;
}

// Returns what the sets and the ranges allow for input `i`, as text for people.
std::string allowed(const std::vector<ProgramSet>& ranges, const std::vector<ShapeSet>& others, std::size_t i) {
  std::string text;
  for (const ShapeSet& set : others) {
    const std::string one = shape_str(set.inputs[i].spec.shape);
    if (text.find(one) == std::string::npos) text += (text.empty() ? "" : " or ") + one;
  }
  for (const ProgramSet& set : ranges) text += (text.empty() ? "" : " or ") + range_str(set.inputs[i], set);
  return text;
}

[[noreturn]] void refuse(const std::vector<ProgramSet>& ranges, const std::vector<ShapeSet>& others, const Shapes& shapes,
                         const std::string& guard) {
  std::vector<std::string> names;
  if (ranges.empty()) {
    for (const NamedSpec& input : others.front().inputs) names.push_back(input.name);
  } else {
    for (const Port& input : ranges.front().inputs) names.push_back(input.name);
  }
  if (shapes.size() != names.size()) {
    throw std::invalid_argument("found " + std::to_string(shapes.size()) + " shapes, expected " + std::to_string(names.size()));
  }
  std::string found, expected;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string shape = shape_str(shapes[i]), one = allowed(ranges, others, i);
    const auto fits = [&](const ProgramSet& set) { return may_be(set, set.inputs[i], shapes[i]); };
    const auto is_same = [&](const ShapeSet& set) { return set.inputs[i].spec.shape == shapes[i]; };
    if (std::none_of(ranges.begin(), ranges.end(), fits) && std::none_of(others.begin(), others.end(), is_same)) {
      throw std::invalid_argument("input " + names[i] + ": found shape " + shape + ", expected " + one);
    }
    found += (i == 0 ? "" : ", ") + names[i] + " " + shape;
    expected += (i == 0 ? "" : ", ") + names[i] + " " + one;
  }
  throw std::invalid_argument("found " + found + ", expected " + (guard.empty() ? expected : guard));
}

ShapeSet shape_set(const ProgramSet& set, Bound bound) {
  ShapeSet made{named(set.inputs, std::move(bound.inputs)), named(set.outputs, std::move(bound.outputs)),
                std::move(bound.program)};
  Surroundings around{{}, {}, 0};
  for (const NamedSpec& input : made.inputs) around.input_bytes.push_back(input.spec.bytes());
  for (const NamedSpec& output : made.outputs) around.output_bytes.push_back(output.spec.bytes());
  check_instructions(*made.program, around);
  return made;
}

}  // namespace

std::string range_str(const Port& port, const ProgramSet& set) {
  std::string sizes, bounds;
  for (const std::string& size : port.sizes) sizes += (sizes.empty() ? "" : ",") + size;
  for (const Symbol& symbol : set.symbols) {
    if (std::find(port.sizes.begin(), port.sizes.end(), symbol.name) == port.sizes.end()) continue;
    bounds += (bounds.empty() ? " with " : ", ") + symbol.name + " " + std::to_string(symbol.bounds.low) + ".." +
              (symbol.bounds.high >= kMostSize ? "" : std::to_string(symbol.bounds.high));
  }
  return "[" + sizes + "]" + bounds;
}

Shapes input_shapes(const ShapeSet& set) {
  Shapes shapes;
  for (const NamedSpec& input : set.inputs) shapes.push_back(input.spec.shape);
  return shapes;
}

ShapeSet bind_shapes(ProgramSet set) {
  const Program& code = set.programs.front().code;
  std::optional<Bound> bound = bind_program(code, input_shapes(code), kStepsOfFiles);
  if (!bound) throw std::invalid_argument("a guard does not hold");
  return shape_set(set, std::move(*bound));
}

ShapeSet bind_range(const std::vector<ProgramSet>& ranges, const std::vector<ShapeSet>& others, const Shapes& shapes) {
  std::string guard;
  for (const ProgramSet& set : ranges) {
    for (const GuardedProgram& each : set.programs) {
      std::optional<std::size_t> broken;
      std::optional<Bound> bound = bind_program(each.code, shapes, kStepsOfFiles, &broken);
      if (bound) return shape_set(set, std::move(*bound));
      if (broken && guard.find(each.guards[*broken]) == std::string::npos) {
        guard += (guard.empty() ? "" : " or ") + each.guards[*broken];
      }
    }
  }
  refuse(ranges, others, shapes, guard);
}

}  // namespace ngraph_mxnet
