// Sections RANGE of a compiled file: docs/artefact.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artefact/artefact_file.h"
#include "artefact/format_reader.h"
#include "core/program.h"

namespace ngraph_mxnet {

// An input or output whose sizes are texts: numbers, symbols, and what is computed of symbols.
struct RangePort {
  std::string name;
  const Element* element;
  std::vector<std::string> sizes;
};

struct RangeSymbol {
  std::string name;
  SymbolicBounds bounds;
};

// A Program for some of the sizes of a range: those for which all guards hold, which stand here as texts.
struct RangeProgram {
  Program code;
  std::vector<std::string> guards;
};

// The model for a range of sizes.
struct RangeSet {
  std::vector<RangePort> inputs, outputs;
  std::vector<RangeSymbol> symbols;
  std::vector<RangeProgram> programs;
};

// Throws FormatError, CpuError, and std::invalid_argument for what refers to nothing.
RangeSet read_range(Reader reader, const Section& data, const std::shared_ptr<const ArtefactFile>& file);

}  // namespace ngraph_mxnet
