#include "artefact/range_sets.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/validator.h"

namespace ngraph_mxnet {
namespace {

// True if the size `size` of the range may be `value`, whatever the other sizes are.
bool may_be(const RangeSet& set, const std::string& size, std::int64_t value) {
  for (const RangeSymbol& symbol : set.symbols) {
    if (symbol.name == size) return value >= symbol.bounds.low && value <= symbol.bounds.high;
  }
  return size == std::to_string(value) || size.find_first_not_of("0123456789") != std::string::npos;
}

bool may_be(const RangeSet& set, const RangePort& port, const std::vector<std::int64_t>& shape) {
  if (port.sizes.size() != shape.size()) return false;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (!may_be(set, port.sizes[axis], shape[axis])) return false;
  }
  return true;
}

std::vector<NamedSpec> named(const std::vector<RangePort>& ports, std::vector<TensorSpec> specs) {
  std::vector<NamedSpec> made;
  for (std::size_t i = 0; i < ports.size(); ++i) made.push_back({ports[i].name, std::move(specs[i])});
  return made;
}

std::string all_str(const std::vector<RangePort>& ports, const Shapes& shapes) {
  std::string text;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    text += (i == 0 ? "" : ", ") + ports[i].name + " " + shape_str(shapes[i]);
  }
  return text;
}

[[noreturn]] void refuse(const Artefact& artefact, const Shapes& shapes, const std::string& guard) {
  const std::vector<RangeSet>& ranges = artefact.ranges;
  const std::vector<RangePort>& inputs = ranges.front().inputs;
  if (shapes.size() != inputs.size()) {
    throw std::invalid_argument("found " + std::to_string(shapes.size()) + " shapes, expected " +
                                std::to_string(inputs.size()));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto fits = [&](const RangeSet& set) { return may_be(set, set.inputs[i], shapes[i]); };
    if (std::any_of(ranges.begin(), ranges.end(), fits)) continue;
    std::string expected;
    for (const ShapeSet& set : artefact.shape_sets) {
      const std::string one = shape_str(set.inputs[i].spec.shape);
      if (expected.find(one) == std::string::npos) expected += one + " or ";
    }
    for (const RangeSet& set : ranges) expected += (&set == &ranges.front() ? "" : " or ") + range_str(set.inputs[i], set);
    throw std::invalid_argument("input " + inputs[i].name + ": found shape " + shape_str(shapes[i]) + ", expected " + expected);
  }
  std::string expected = guard;
  for (std::size_t i = 0; guard.empty() && i < inputs.size(); ++i) {
    expected += (i == 0 ? "" : ", ") + inputs[i].name + " " + range_str(inputs[i], ranges.front());
  }
  throw std::invalid_argument("found " + all_str(inputs, shapes) + ", expected " + expected);
}

}  // namespace

std::string range_str(const RangePort& port, const RangeSet& set) {
  std::string sizes, bounds;
  for (const std::string& size : port.sizes) sizes += (sizes.empty() ? "" : ",") + size;
  for (const RangeSymbol& symbol : set.symbols) {
    if (std::find(port.sizes.begin(), port.sizes.end(), symbol.name) == port.sizes.end()) continue;
    bounds += (bounds.empty() ? " with " : ", ") + symbol.name + " " + std::to_string(symbol.bounds.low) + ".." +
              (symbol.bounds.high >= kMostSize ? "" : std::to_string(symbol.bounds.high));
  }
  return "[" + sizes + "]" + bounds;
}

ShapeSet bind_range(const Artefact& artefact, const Shapes& shapes) {
  std::string guard;
  for (const RangeSet& set : artefact.ranges) {
    for (const RangeProgram& each : set.programs) {
      std::optional<std::size_t> broken;
      std::optional<Bound> bound = bind_program(each.code, shapes, kStepsOfFiles, &broken);
      if (bound) {
        ShapeSet made{named(set.inputs, std::move(bound->inputs)), named(set.outputs, std::move(bound->outputs)),
                      std::move(bound->program)};
        check_instructions(*made.program, around_of(made));
        return made;
      }
      if (broken && guard.find(each.guards[*broken]) == std::string::npos) {
        guard += (guard.empty() ? "" : " or ") + each.guards[*broken];
      }
    }
  }
  refuse(artefact, shapes, guard);
}

}  // namespace ngraph_mxnet
