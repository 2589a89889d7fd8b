#include "artefact/artefact.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/kernel_table.h"

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

[[noreturn]] void refuse(const std::vector<ProgramSet>& ranges, const std::vector<ShapeSet>& others,
                         const Shapes& shapes, const std::string& guard) {
  std::vector<std::string> names;
  if (ranges.empty()) {
    for (const NamedSpec& input : others.front().inputs) names.push_back(input.name);
  } else {
    for (const Port& input : ranges.front().inputs) names.push_back(input.name);
  }
  if (shapes.size() != names.size()) {
    throw std::invalid_argument("found " + std::to_string(shapes.size()) + " shapes, expected " +
                                std::to_string(names.size()));
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

namespace {

using Read = ProgramSet (*)(Reader, const Section& data, const std::shared_ptr<const ArtefactFile>&);

// Reads the sections of a kind for one instruction set, and returns their contents by number. Throws CpuError if a
// kernel needs more than the instruction set.
std::vector<ProgramSet> read_kind(const std::shared_ptr<const ArtefactFile>& file, const Section& data, Kind kind,
                                  const InstructionSet& isa, Read read) {
  std::vector<std::optional<ProgramSet>> found;
  for (const Section& section : file->sections()) {
    if (section.kind != kind || section.instruction_set != isa.number) continue;
    file->check(section);
    if (section.number >= kMostSections) fail(section.str() + " has the number " + std::to_string(section.number));
    if (section.number >= found.size()) found.resize(section.number + 1);
    if (found[section.number]) fail(section.str() + " is there twice");
    try {
      found[section.number] = read(Reader(file->content(section), section.bytes, section.str()), data, file);
    } catch (const std::invalid_argument& error) {
      fail(section.str() + ": " + error.what());
    }
  }
  std::vector<ProgramSet> sets;
  for (std::optional<ProgramSet>& each : found) {
    if (!each) fail(std::string("a set of shapes has no instructions for ") + isa.name);
    sets.push_back(std::move(*each));
  }
  return sets;
}

// Returns the sets of shapes, and the ranges behind them.
std::vector<ProgramSet> read_sets(const std::shared_ptr<const ArtefactFile>& file, const Section& data,
                                  const InstructionSet& isa) {
  if (file->format() > 1) return read_kind(file, data, kProgram, isa, read_programs);
  auto sets = read_kind(file, data, kProgram, isa, read_levels);
  auto ranges = read_kind(file, data, kRange, isa, read_programs);
  std::move(ranges.begin(), ranges.end(), std::back_inserter(sets));
  return sets;
}

using Named = std::vector<std::pair<std::string, const Element*>>;

Named names_of(const std::vector<Port>& ports) {
  Named found;
  for (const Port& port : ports) found.emplace_back(port.name, port.element);
  return found;
}

void check_ports(const std::vector<ProgramSet>& sets) {
  for (const ProgramSet& set : sets) {
    if (names_of(set.inputs) != names_of(sets[0].inputs) || names_of(set.outputs) != names_of(sets[0].outputs)) {
      fail("sets of shapes have different ports");
    }
  }
}

// The pieces of DATA that these programs read.
void check_data(const ArtefactFile& file, const Section& data, const Section* checks,
                const std::vector<ProgramSet>& sets) {
  if (checks == nullptr) return file.check(data);
  std::vector<std::pair<std::size_t, std::size_t>> read;
  for (const ProgramSet& set : sets) {
    for (const GuardedProgram& each : set.programs) {
      for (const SymbolicConstant& constant : each.code.constants) {
        if (constant.table != nullptr) continue;
        const auto first = static_cast<std::size_t>(constant.fixed.data - file.content(data));
        read.emplace_back(first, first + constant.fixed.bytes);
      }
    }
  }
  file.check_ranges(data, *checks, read);
}

// Behind check_data: tables that are damaged would seem to be wrong instructions.
void bind_sets(std::vector<ProgramSet> sets, Artefact* artefact) {
  for (ProgramSet& set : sets) {
    if (!set.symbols.empty()) {
      artefact->ranges.push_back(std::move(set));
      continue;
    }
    const std::size_t number = artefact->shape_sets.size();
    if (!artefact->ranges.empty()) fail("a set of shapes comes after a range");
    try {
      artefact->shape_sets.push_back(bind_shapes(std::move(set)));
    } catch (const std::invalid_argument& error) {
      fail("PROGRAM for set of shapes " + std::to_string(number) + ": " + error.what());
    }
  }
}

}  // namespace

Artefact load_artefact(const std::string& path) {
  const auto file = std::make_shared<const ArtefactFile>(path);
  const Section* data = nullptr;
  const Section* meta = nullptr;
  const Section* checks = nullptr;
  for (const Section& section : file->sections()) {
    if (section.kind == kData && std::exchange(data, &section) != nullptr) fail("there are two DATA");
    if (section.kind == kMeta && std::exchange(meta, &section) != nullptr) fail("there are two META");
    if (section.kind == kChecks) checks = &section;
  }
  if (data == nullptr || meta == nullptr) fail("a section is missing");
  file->check(*meta);
  const InstructionSet* const best = &best_instruction_set();
  for (const InstructionSet* set = best; set != kInstructionSets + kInstructionSetCount; ++set) {
    if (!runs(*set)) continue;
    try {
      auto sets = read_sets(file, *data, *set);
      if (sets.empty()) continue;
      check_ports(sets);
      check_data(*file, *data, checks, sets);
      Artefact artefact{file, std::string(file->content(*meta), meta->bytes), set->name, {}, {}};
      bind_sets(std::move(sets), &artefact);
      return artefact;
    } catch (const CpuError&) {  // a more modest one may do
    }
  }
  throw CpuError(std::string("the file has no instructions for ") + best->name +
                 " or less that this CPU runs: compile the model with --isa, for this CPU");
}

}  // namespace ngraph_mxnet
