#include "artefact/program_reader.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "artefact/artefact_fields.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);
// In bytes.
constexpr std::size_t kLeastPort = 3 * kWord, kLeastSymbol = 20, kLeastProgram = 10 * kWord, kLoop = 2 * kWord, kStep = 32,
                      kLeastGuard = 16, kBuffer = 3 * kWord, kLeastConstant = 3 * kWord, kLeastInstruction = 12 * kWord;
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

SymbolicInstruction read_instruction(Reader* reader, const Texts& texts) {
  SymbolicInstruction made;
  made.name = texts[reader->u32()];
  made.origin = texts[reader->u32()].substr(0, kMostOrigin);
  const std::uint32_t operands = reader->u32(), ints = reader->u32(), floats = reader->u32(), waits = reader->u32(),
                      carried = reader->u32();
  made.loop = optional_place(reader);
  made.node = reader->u32();
  made.tasks = reader->u32();
  made.operations = reader->u32();
  made.bytes = reader->u32();
  made.operands.reserve(std::min<std::size_t>(operands, kMostReserved));
  for (std::uint32_t i = 0; i < operands; ++i) {
    const std::uint32_t space = reader->u32(), index = reader->u32();
    if (space > static_cast<std::uint32_t>(Space::kConstant)) fail("an operand in space " + std::to_string(space));
    made.operands.push_back({static_cast<Space>(space), index, reader->u32()});
  }
  made.ints = reader->places(ints);
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
    for (std::size_t i = 0; i < count; ++i) list->push_back(read_instruction(reader, texts));
  }
  code.owner = file;
  check_program(code);
  return made;
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

}  // namespace ngraph_mxnet
