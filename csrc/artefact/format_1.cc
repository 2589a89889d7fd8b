#include "artefact/format_1.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "artefact/artefact_fields.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kLeastPort = 12, kLeastInstruction = 44;  // in bytes

// Steps of sizes that are numbers.
class Numbers {
 public:
  Slot of(std::int64_t value) {
    const auto [known, is_new] = slots_.emplace(value, steps_.size());
    if (is_new) steps_.push_back({SizeOp::kNumber, value, 0, 0, 0});
    return known->second;
  }
  std::vector<Slot> of(const std::vector<std::int64_t>& values) {
    std::vector<Slot> slots;
    slots.reserve(values.size());
    for (const std::int64_t value : values) slots.push_back(of(value));
    return slots;
  }
  // For profiles.
  Slot of_double(double value) { return of(value >= 0 && value < kMostSize ? static_cast<std::int64_t>(value) : 0); }

  SizeCode code() { return {0, std::move(steps_)}; }

 private:
  std::unordered_map<std::int64_t, Slot> slots_;
  std::vector<SizeStep> steps_;
};

void read_ports(Reader* reader, std::size_t count, Numbers* numbers, std::vector<Port>* ports,
                std::vector<SymbolicSpec>* specs) {
  for (std::size_t i = 0; i < count; ++i) {
    Port port{reader->text(), &element_by_name(reader->text()), {}};
    const auto shape = reader->numbers<std::int64_t>(reader->count(sizeof(std::int64_t)));
    if (shape.size() > kMostRank) fail("port " + port.name + " has rank " + std::to_string(shape.size()));
    for (const std::int64_t size : shape) port.sizes.push_back(std::to_string(size));
    specs->push_back({port.element->name, numbers->of(shape)});
    ports->push_back(std::move(port));
  }
}

SymbolicInstruction read_instruction(Reader* reader, const Texts& texts, Numbers* numbers) {
  SymbolicInstruction made;
  made.name = texts[reader->u32()];
  made.origin = texts[reader->u32()].substr(0, kMostOrigin);
  const std::uint32_t operands = reader->u32(), ints = reader->u32(), floats = reader->u32();
  made.tasks = numbers->of(static_cast<std::int64_t>(reader->u64()));
  made.operations = numbers->of_double(reader->number<double>());
  made.bytes = numbers->of_double(reader->number<double>());
  for (std::uint32_t i = 0; i < operands; ++i) {
    const std::uint32_t space = reader->u32(), index = reader->u32();
    if (space > static_cast<std::uint32_t>(Space::kConstant)) fail("an operand in space " + std::to_string(space));
    made.operands.push_back({static_cast<Space>(space), index, numbers->of(static_cast<std::int64_t>(reader->u64()))});
  }
  made.ints = numbers->of(reader->numbers<std::int64_t>(ints));
  made.floats = reader->numbers<double>(floats);
  made.kernel = named_kernel(made.name);
  return made;
}

}  // namespace

ProgramSet read_levels(Reader reader, const Section& data, const std::shared_ptr<const ArtefactFile>& file) {
  ProgramSet set;
  Program& code = set.programs.emplace_back().code;
  Numbers numbers;
  const std::size_t inputs = reader.count(kLeastPort), outputs = reader.count(kLeastPort);
  read_ports(&reader, inputs, &numbers, &set.inputs, &code.inputs);
  read_ports(&reader, outputs, &numbers, &set.outputs, &code.outputs);
  // The arena is one buffer. A region whose zeros no instruction writes: all of it is zero before the first run.
  code.buffers.push_back({numbers.of(static_cast<std::int64_t>(reader.u64())), 0, -1});
  code.constants.resize(reader.count(2 * sizeof(std::uint64_t)));
  for (SymbolicConstant& constant : code.constants) constant.fixed = read_constant(&reader, data, *file);
  const Texts texts(&reader);
  const std::size_t levels = reader.count(sizeof(std::uint32_t));
  std::vector<std::size_t> waits;  // for the first instruction of the level before, so that levels stay as they are
  for (std::size_t level = 0; level < levels; ++level) {
    const std::size_t count = reader.count(kLeastInstruction), first = code.instructions.size();
    for (std::size_t i = 0; i < count; ++i) {
      code.instructions.push_back(read_instruction(&reader, texts, &numbers));
      code.instructions.back().waits = waits;
    }
    if (count > 0) waits = {first};
  }
  code.sizes = numbers.code();
  code.owner = file;
  check_program(code);
  return set;
}

}  // namespace ngraph_mxnet
