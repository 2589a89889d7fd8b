#include "artefact.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "aligned_buffer.h"
#include "artefact_file.h"
#include "kernel_table.h"
#include "validator.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kMostRank = 32;  // NumPy's
// In bytes. Of an origin, which is for profiles, each instruction has a copy of its own.
constexpr std::size_t kLeastPort = 12, kLeastInstruction = 44, kMostOrigin = 200;

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

Instruction read_instruction(Reader* reader, const std::vector<std::string>& texts) {
  const auto text = [&](std::uint32_t number) -> const std::string& {
    if (number >= texts.size()) fail("an instruction has no name");
    return texts[number];
  };
  Instruction instruction;
  instruction.name = text(reader->u32());
  instruction.origin = text(reader->u32()).substr(0, kMostOrigin);
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
  const FoundKernel found = find_kernel(instruction.name);
  if (found.kernel == nullptr) fail("this library has no kernel '" + instruction.name + "': update it");
  if (!found.runs) throw CpuError("this CPU does not run the kernel '" + instruction.name + "'");
  instruction.kernel = found.kernel;
  return instruction;
}

Surroundings around(const ShapeSet& set) {
  Surroundings found{{}, {}, 0};
  for (const NamedSpec& input : set.inputs) found.input_bytes.push_back(input.spec.bytes());
  for (const NamedSpec& output : set.outputs) found.output_bytes.push_back(output.spec.bytes());
  return found;
}

ShapeSet read_program(Reader reader, const Section& data, const std::shared_ptr<const ArtefactFile>& file) {
  ShapeSet set;
  const std::size_t inputs = reader.count(kLeastPort), outputs = reader.count(kLeastPort);
  for (std::size_t i = 0; i < inputs; ++i) set.inputs.push_back(read_port(&reader));
  for (std::size_t i = 0; i < outputs; ++i) set.outputs.push_back(read_port(&reader));
  const std::uint64_t arena = reader.u64();
  std::vector<Constant> constants(reader.count(2 * sizeof(std::uint64_t)));
  for (Constant& constant : constants) {
    const std::uint64_t offset = reader.u64();
    constant.bytes = reader.u64();
    if (offset % kAlignment != 0 || offset > data.bytes || constant.bytes > data.bytes - offset ||
        data.bytes - offset - constant.bytes < kAlignment) {
      fail("a constant lies outside of DATA");
    }
    constant.data = file->content(data) + offset;
  }
  std::vector<std::string> texts(reader.count(sizeof(std::uint32_t)));
  for (std::string& text : texts) text = reader.text();
  std::vector<Level> levels(reader.count(sizeof(std::uint32_t)));
  for (Level& level : levels) {
    const std::size_t count = reader.count(kLeastInstruction);
    level.reserve(count);
    for (std::size_t i = 0; i < count; ++i) level.push_back(read_instruction(&reader, texts));
  }
  set.program = std::make_shared<Program>(std::move(levels), arena, std::move(constants), file);
  check_operands(*set.program, around(set));
  return set;
}

bool same_ports(const std::vector<NamedSpec>& a, const std::vector<NamedSpec>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const NamedSpec& one, const NamedSpec& other) {
    return one.name == other.name && one.spec.element == other.spec.element;
  });
}

// The programs of one instruction set, by their set of shapes. Throws CpuError if a kernel needs more than that.
std::vector<ShapeSet> read_shape_sets(const std::shared_ptr<const ArtefactFile>& file, const InstructionSet& set,
                                      const Section& data) {
  std::vector<std::optional<ShapeSet>> found;
  for (const Section& section : file->sections()) {
    if (section.kind != kProgram || section.instruction_set != set.number) continue;
    file->check(section);
    if (section.shapes >= kMostSections) fail(section.str() + " has the number " + std::to_string(section.shapes));
    if (section.shapes >= found.size()) found.resize(section.shapes + 1);
    if (found[section.shapes]) fail(section.str() + " is there twice");
    try {
      found[section.shapes] = read_program(Reader(file->content(section), section.bytes, section.str()), data, file);
    } catch (const std::invalid_argument& error) {
      fail(section.str() + ": " + error.what());
    }
  }
  std::vector<ShapeSet> sets;
  for (std::optional<ShapeSet>& each : found) {
    if (!each) fail(std::string("a set of shapes has no instructions for ") + set.name);
    sets.push_back(std::move(*each));
    const ShapeSet& first = sets.front();
    const ShapeSet& last = sets.back();
    if (!same_ports(last.inputs, first.inputs) || !same_ports(last.outputs, first.outputs)) {
      fail("sets of shapes have different ports");
    }
  }
  return sets;
}

// The pieces of DATA that these programs read.
void check_data(const ArtefactFile& file, const Section& data, const Section* checks,
                const std::vector<ShapeSet>& sets) {
  if (checks == nullptr) return file.check(data);
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (const ShapeSet& set : sets) {
    for (const Constant& constant : set.program->constants()) {
      const std::size_t first = static_cast<std::size_t>(constant.data - file.content(data));
      ranges.emplace_back(first, first + constant.bytes);
    }
  }
  file.check_ranges(data, *checks, ranges);
}

// Behind check_data: tables that are damaged would seem to be wrong instructions.
void check_programs(const std::vector<ShapeSet>& sets) {
  for (std::size_t i = 0; i < sets.size(); ++i) {
    try {
      check_instructions(*sets[i].program, around(sets[i]));
    } catch (const std::invalid_argument& error) {
      fail("PROGRAM for set of shapes " + std::to_string(i) + ": " + error.what());
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
      std::vector<ShapeSet> found = read_shape_sets(file, *set, *data);
      if (found.empty()) continue;
      check_data(*file, *data, checks, found);
      check_programs(found);
      return {file, std::string(file->content(*meta), meta->bytes), set->name, std::move(found)};
    } catch (const CpuError&) {  // a more modest one may do
    }
  }
  throw CpuError(std::string("the file has no instructions for ") + best->name +
                 " or less that this CPU runs: compile the model with --isa, for this CPU");
}

}  // namespace ngraph_mxnet
