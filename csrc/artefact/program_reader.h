// Sections PROGRAM of a compiled file: docs/artefact.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artefact/artefact_file.h"
#include "core/program.h"

namespace ngraph_mxnet {

// An input or output. Its sizes are texts for people: numbers, symbols, and what is computed of symbols.
struct Port {
  std::string name;
  const Element* element;
  std::vector<std::string> sizes;
};

struct Symbol {
  std::string name;
  SymbolicBounds bounds;
};

// A Program for those sizes for which all guards hold, which stand here as texts.
struct GuardedProgram {
  Program code;
  std::vector<std::string> guards;
};

// The model for a range of sizes; without symbols for one set of shapes, by one Program.
struct ProgramSet {
  std::vector<Port> inputs, outputs;
  std::vector<Symbol> symbols;
  std::vector<GuardedProgram> programs;
};

// Throws FormatError, CpuError, and std::invalid_argument for what refers to nothing.
ProgramSet read_programs(Reader reader, const Section& data, const std::shared_ptr<const ArtefactFile>& file);

// Returns the set of shapes with a Program whose numbers are constants. Throws as `read_programs`.
ProgramSet read_levels(Reader reader, const Section& data, const std::shared_ptr<const ArtefactFile>& file);

}  // namespace ngraph_mxnet
