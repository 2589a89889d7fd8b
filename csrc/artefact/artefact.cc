#include "artefact/artefact.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include "artefact/artefact_file.h"
#include "artefact/format_1.h"
#include "core/kernel_table.h"

namespace ngraph_mxnet {
namespace {

using Read = ProgramSet (*)(Reader, const Section& data, const std::shared_ptr<const ArtefactFile>&);

// Reads the sections of a kind for one instruction set, and returns their contents by number. Throws CpuError if a kernel
// needs more than the instruction set.
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
void check_data(const ArtefactFile& file, const Section& data, const Section* checks, const std::vector<ProgramSet>& sets) {
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
