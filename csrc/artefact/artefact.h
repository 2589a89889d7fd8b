// A compiled model in a file: docs/artefact.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artefact/format_reader.h"
#include "artefact/program_sets.h"

namespace ngraph_mxnet {

struct Artefact {
  std::shared_ptr<const ArtefactFile> file;
  std::string metadata;         // JSON
  std::string instruction_set;  // whose instructions the programs are
  std::vector<ShapeSet> shape_sets;
  std::vector<ProgramSet> ranges;  // at least one of both
};

// The weights stay in the file, which is mapped as long as the artefact or one of the programs lives.
// Throws std::system_error where the file can't be read, FormatError and CpuError.
Artefact load_artefact(const std::string& path);

}  // namespace ngraph_mxnet
