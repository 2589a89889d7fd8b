#include "artefact/artefact.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "artefact/artefact_fields.h"
#include "artefact/artefact_file.h"
#include "core/kernel_table.h"
#include "core/validator.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kLeastPort = 12, kLeastInstruction = 44;  // in bytes

NamedSpec read_port(Reader* reader) {
  std::string name = reader->text();
  const std::string element = reader->text();
  const auto shape = reader->numbers<std::int64_t>(reader->count(sizeof(std::int64_t)));
  std::uint64_t elements = 1;  // as if none of the dimensions were 0: nothing else may be made of the others
  for (std::int64_t dimension : shape) {
    const auto size = static_cast<std::uint64_t>(std::max<std::int64_t>(dimension, 1));
    if (dimension < 0 || elements > kMostBytes / 16 / size || shape.size() > kMostRank) {
      fail("port " + name + " has the shape " + shape_str(shape));
    }
    elements *= size;
  }
  return {std::move(name), TensorSpec(element, shape)};
}

Instruction read_instruction(Reader* reader, const Texts& texts) {
  Instruction instruction;
  instruction.name = texts[reader->u32()];
  instruction.origin = texts[reader->u32()].substr(0, kMostOrigin);
  const std::uint32_t operands = reader->u32(), ints = reader->u32(), floats = reader->u32();
  instruction.tasks = static_cast<std::int64_t>(reader->u64());
  instruction.operations = reader->number<double>();
  instruction.bytes = reader->number<double>();
  for (std::uint32_t i = 0; i < operands; ++i) {
    const std::uint32_t space = reader->u32(), index = reader->u32();
    if (space > static_cast<std::uint32_t>(Space::kConstant)) fail("an operand in space " + std::to_string(space));
    instruction.operands.push_back({static_cast<Space>(space), index, reader->u64()});
  }
  instruction.ints = reader->numbers<std::int64_t>(ints);
  instruction.floats = reader->numbers<double>(floats);
  instruction.kernel = named_kernel(instruction.name);
  return instruction;
}

ShapeSet read_program(Reader reader, const Section& data, const std::shared_ptr<const ArtefactFile>& file) {
  ShapeSet set;
  const std::size_t inputs = reader.count(kLeastPort), outputs = reader.count(kLeastPort);
  for (std::size_t i = 0; i < inputs; ++i) set.inputs.push_back(read_port(&reader));
  for (std::size_t i = 0; i < outputs; ++i) set.outputs.push_back(read_port(&reader));
  const std::uint64_t arena = reader.u64();
  std::vector<Constant> constants(reader.count(2 * sizeof(std::uint64_t)));
  for (Constant& constant : constants) constant = read_constant(&reader, data, *file);
  const Texts texts(&reader);
  std::vector<Level> levels(reader.count(sizeof(std::uint32_t)));
  for (Level& level : levels) {
    const std::size_t count = reader.count(kLeastInstruction);
    level.reserve(count);
    for (std::size_t i = 0; i < count; ++i) level.push_back(read_instruction(&reader, texts));
  }
  set.program = std::make_shared<BoundProgram>(std::move(levels), arena, std::move(constants), file);
  check_operands(*set.program, around_of(set));
  return set;
}

// Reads the sections of a kind for one instruction set, and returns their contents by number. Throws CpuError if a kernel
// needs more than the instruction set.
template <class Set, class Read>
std::vector<Set> read_sets(const ArtefactFile& file, Kind kind, const InstructionSet& isa, Read read) {
  std::vector<std::optional<Set>> found;
  for (const Section& section : file.sections()) {
    if (section.kind != kind || section.instruction_set != isa.number) continue;
    file.check(section);
    if (section.shapes >= kMostSections) fail(section.str() + " has the number " + std::to_string(section.shapes));
    if (section.shapes >= found.size()) found.resize(section.shapes + 1);
    if (found[section.shapes]) fail(section.str() + " is there twice");
    try {
      found[section.shapes] = read(Reader(file.content(section), section.bytes, section.str()));
    } catch (const std::invalid_argument& error) {
      fail(section.str() + ": " + error.what());
    }
  }
  std::vector<Set> sets;
  for (std::optional<Set>& each : found) {
    if (!each) fail(std::string("a set of shapes has no instructions for ") + isa.name);
    sets.push_back(std::move(*each));
  }
  return sets;
}

using Named = std::vector<std::pair<std::string, const Element*>>;

Named names_of(const std::vector<NamedSpec>& ports) {
  Named found;
  for (const NamedSpec& port : ports) found.emplace_back(port.name, port.spec.element);
  return found;
}

Named names_of(const std::vector<RangePort>& ports) {
  Named found;
  for (const RangePort& port : ports) found.emplace_back(port.name, port.element);
  return found;
}

void check_ports(const std::vector<ShapeSet>& sets, const std::vector<RangeSet>& ranges) {
  std::optional<std::pair<Named, Named>> first;
  const auto check = [&](const auto& set) {
    std::pair<Named, Named> ports{names_of(set.inputs), names_of(set.outputs)};
    if (first && *first != ports) fail("sets of shapes have different ports");
    if (!first) first = std::move(ports);
  };
  for (const ShapeSet& set : sets) check(set);
  for (const RangeSet& set : ranges) check(set);
}

// The pieces of DATA that these programs read.
void check_data(const ArtefactFile& file, const Section& data, const Section* checks, const std::vector<ShapeSet>& sets,
                const std::vector<RangeSet>& ranges) {
  if (checks == nullptr) return file.check(data);
  std::vector<std::pair<std::size_t, std::size_t>> read;
  const auto add = [&](const Constant& constant) {
    const std::size_t first = static_cast<std::size_t>(constant.data - file.content(data));
    read.emplace_back(first, first + constant.bytes);
  };
  for (const ShapeSet& set : sets) {
    for (const Constant& constant : set.program->constants()) add(constant);
  }
  for (const RangeSet& set : ranges) {
    for (const RangeProgram& each : set.programs) {
      for (const SymbolicConstant& constant : each.code.constants) {
        if (constant.table == nullptr) add(constant.fixed);
      }
    }
  }
  file.check_ranges(data, *checks, read);
}

// Behind check_data: tables that are damaged would seem to be wrong instructions.
void check_programs(const std::vector<ShapeSet>& sets) {
  for (std::size_t i = 0; i < sets.size(); ++i) {
    try {
      check_instructions(*sets[i].program, around_of(sets[i]));
    } catch (const std::invalid_argument& error) {
      fail("PROGRAM for set of shapes " + std::to_string(i) + ": " + error.what());
    }
  }
}

}  // namespace

Surroundings around_of(const ShapeSet& set) {
  Surroundings found{{}, {}, 0};
  for (const NamedSpec& input : set.inputs) found.input_bytes.push_back(input.spec.bytes());
  for (const NamedSpec& output : set.outputs) found.output_bytes.push_back(output.spec.bytes());
  return found;
}

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
      auto found = read_sets<ShapeSet>(*file, kProgram, *set, [&](Reader reader) { return read_program(reader, *data, file); });
      auto ranges = read_sets<RangeSet>(*file, kRange, *set, [&](Reader reader) { return read_range(reader, *data, file); });
      if (found.empty() && ranges.empty()) continue;
      check_ports(found, ranges);
      check_data(*file, *data, checks, found, ranges);
      check_programs(found);
      return {file, std::string(file->content(*meta), meta->bytes), set->name, std::move(found), std::move(ranges)};
    } catch (const CpuError&) {  // a more modest one may do
    }
  }
  throw CpuError(std::string("the file has no instructions for ") + best->name +
                 " or less that this CPU runs: compile the model with --isa, for this CPU");
}

}  // namespace ngraph_mxnet
