#include "artefact/program_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "core/aligned_buffer.h"
#include "core/bound_program.h"
#include "core/kernel_table.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kMostRank = 32;     // NumPy's
constexpr std::size_t kMostOrigin = 200;  // of an origin, which is for profiles, each instruction has a copy of its own

// Texts that are told by their numbers.
class Texts {
 public:
  explicit Texts(Reader* reader) : texts_(reader->count(sizeof(std::uint32_t))) {
    for (std::string& text : texts_) text = reader->text();
  }
  const std::string& operator[](std::uint32_t number) const {
    if (number >= texts_.size()) fail("an instruction has no name");
    return texts_[number];
  }

 private:
  std::vector<std::string> texts_;
};

Kernel named_kernel(const std::string& name) {
  const FoundKernel found = find_kernel(name);
  if (found.kernel == nullptr) fail("this library has no kernel '" + name + "': update it");
  if (!found.runs) throw CpuError("this CPU does not run the kernel '" + name + "'");
  return found.kernel;
}

Constant read_constant(Reader* reader, const Section& data, const ArtefactFile& file) {
  const std::uint64_t offset = reader->u64(), bytes = reader->u64();
  if (offset % kAlignment != 0 || offset > data.bytes || bytes > data.bytes - offset ||
      data.bytes - offset - bytes < kAlignment) {
    fail("a constant lies outside of DATA");
  }
  return {file.content(data) + offset, bytes};
}

constexpr std::size_t kWord = sizeof(std::uint32_t);
// In bytes.
constexpr std::size_t kLeastPort = 3 * kWord, kLeastSymbol = 20, kLeastProgram = 10 * kWord, kLoop = 2 * kWord,
                      kStep = 32, kLeastGuard = 16, kBuffer = 3 * kWord, kLeastConstant = 3 * kWord,
                      kLeastInstruction = 12 * kWord,
                      kLeastFixed = 44;    // of an instruction at given sizes, in format 1
constexpr std::size_t kMostReserved = 64;  // a file may be damaged
constexpr std::size_t kMostSteps = std::size_t{1} << 24;  // all of them are computed for each new shape

Port read_port(Reader* reader) {
  Port port;
  port.name = reader->text();
  port.element = &element_by_name(reader->text());
  port.sizes.resize(reader->count(kWord));
  if (port.sizes.size() > kMostRank) fail("port " + port.name + " has rank " + std::to_string(port.sizes.size()));
  for (std::string& size : port.sizes) size = reader->text();
  return port;
}

// 0 stands for none.
std::int64_t optional_place(Reader* reader) { return static_cast<std::int64_t>(reader->u32()) - 1; }

// Steps of sizes that are numbers, which files of format 1 have in place of slots.
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

// `numbers`: where the file is of format 1, else null.
SymbolicInstruction read_instruction(Reader* reader, const Texts& texts, Numbers* numbers) {
  const auto slot = [&]() -> Slot {
    return numbers != nullptr ? numbers->of(static_cast<std::int64_t>(reader->u64())) : reader->u32();
  };
  const auto slot_of_double = [&]() -> Slot {
    return numbers != nullptr ? numbers->of_double(reader->number<double>()) : reader->u32();
  };
  SymbolicInstruction made;
  made.name = texts[reader->u32()];
  made.origin = texts[reader->u32()].substr(0, kMostOrigin);
  const std::uint32_t operands = reader->u32(), ints = reader->u32(), floats = reader->u32();
  const std::uint32_t waits = numbers != nullptr ? 0 : reader->u32(), carried = numbers != nullptr ? 0 : reader->u32();
  if (numbers == nullptr) {
    made.loop = optional_place(reader);
    made.node = reader->u32();
  }
  made.tasks = slot();
  made.operations = slot_of_double();
  made.bytes = slot_of_double();
  made.operands.reserve(std::min<std::size_t>(operands, kMostReserved));
  for (std::uint32_t i = 0; i < operands; ++i) {
    const std::uint32_t space = reader->u32(), index = reader->u32();
    if (space > static_cast<std::uint32_t>(Space::kConstant)) fail("an operand in space " + std::to_string(space));
    made.operands.push_back({static_cast<Space>(space), index, slot()});
  }
  made.ints = numbers != nullptr ? numbers->of(reader->numbers<std::int64_t>(ints)) : reader->places(ints);
  made.floats = reader->numbers<double>(floats);
  made.waits = reader->places(waits);
  made.carried = reader->places(carried);
  made.kernel = named_kernel(made.name);
  return made;
}

SymbolicConstant read_constant_or_table(Reader* reader, const Section& data, const ArtefactFile& file) {
  const std::uint32_t kind = reader->u32();
  if (kind == 0) return {nullptr, read_constant(reader, data, file), {}};
  if (kind <= kTables.size()) return {&kTables[kind - 1], {nullptr, 0}, reader->places(kTables[kind - 1].numbers)};
  fail("a constant of the kind " + std::to_string(kind));
}

SizeCode read_sizes(Reader* reader, std::size_t symbols) {
  std::vector<SizeStep> steps(reader->count(kStep));
  if (steps.size() > kMostSteps) fail("sizes of " + std::to_string(steps.size()) + " steps");
  for (SizeStep& step : steps) {
    step.op = static_cast<SizeOp>(reader->u32());
    step.segment = reader->u32();
    step.a = reader->number<std::int64_t>();
    step.b = reader->number<std::int64_t>();
    step.c = reader->number<std::int64_t>();
  }
  return {symbols, std::move(steps)};
}

std::vector<SymbolicSpec> read_specs(Reader* reader, const std::vector<Port>& ports) {
  std::vector<SymbolicSpec> specs;
  for (const Port& port : ports) specs.push_back({port.element->name, reader->places(port.sizes.size())});
  return specs;
}

GuardedProgram read_program(Reader* reader, const ProgramSet& set, const Section& data,
                            const std::shared_ptr<const ArtefactFile>& file) {
  std::vector<SymbolicLoop> loops(reader->count(kLoop));
  for (SymbolicLoop& loop : loops) {
    loop.count = reader->u32();
    loop.index = reader->u32();
  }
  GuardedProgram made;
  Program& code = made.code;
  code.sizes = read_sizes(reader, set.symbols.size() + loops.size());
  code.loops = std::move(loops);
  for (const Symbol& symbol : set.symbols) code.bounds.push_back(symbol.bounds);
  code.inputs = read_specs(reader, set.inputs);
  code.outputs = read_specs(reader, set.outputs);
  code.guards.resize(reader->count(kLeastGuard));
  for (SymbolicGuard& guard : code.guards) {
    guard.slot = reader->u32();
    guard.value = reader->number<std::int64_t>();
    made.guards.push_back(reader->text());
  }
  code.buffers.resize(reader->count(kBuffer));
  for (SymbolicBuffer& buffer : code.buffers) {
    buffer.bytes = reader->u32();
    buffer.region = optional_place(reader);
    buffer.zeroing = optional_place(reader);
  }
  code.constants.resize(reader->count(kLeastConstant));
  for (SymbolicConstant& constant : code.constants) constant = read_constant_or_table(reader, data, *file);
  code.branches = static_cast<int>(reader->u32() & 0xffff);
  code.sharing_gain = static_cast<std::int64_t>(reader->u64());
  const Texts texts(reader);
  for (std::vector<SymbolicInstruction>* list : {&code.instructions, &code.zeroing}) {
    const std::size_t count = reader->count(kLeastInstruction);
    list->reserve(count);
    for (std::size_t i = 0; i < count; ++i) list->push_back(read_instruction(reader, texts, nullptr));
  }
  code.owner = file;
  check_program(code);
  return made;
}

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

}  // namespace

ProgramSet read_programs(Reader reader, const Section& data, const std::shared_ptr<const ArtefactFile>& file) {
  ProgramSet set;
  const std::size_t inputs = reader.count(kLeastPort), outputs = reader.count(kLeastPort);
  for (std::size_t i = 0; i < inputs; ++i) set.inputs.push_back(read_port(&reader));
  for (std::size_t i = 0; i < outputs; ++i) set.outputs.push_back(read_port(&reader));
  set.symbols.resize(reader.count(kLeastSymbol));
  for (Symbol& symbol : set.symbols) {
    symbol.name = reader.text();
    symbol.bounds = {static_cast<std::int64_t>(reader.u64()), static_cast<std::int64_t>(reader.u64())};
  }
  const std::size_t programs = reader.count(kLeastProgram);
  if (programs == 0) fail("a PROGRAM has no program");
  if (set.symbols.empty() && programs > 1) fail("a set of shapes has " + std::to_string(programs) + " programs");
  for (std::size_t i = 0; i < programs; ++i) set.programs.push_back(read_program(&reader, set, data, file));
  return set;
}

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
    const std::size_t count = reader.count(kLeastFixed), first = code.instructions.size();
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
