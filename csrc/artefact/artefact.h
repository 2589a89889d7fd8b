// A compiled model in a file: docs/artefact.md.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "artefact/format_reader.h"
#include "artefact/range_reader.h"
#include "core/bound_program.h"
#include "core/tensor_spec.h"

namespace ngraph_mxnet {

class ArtefactFile;

struct NamedSpec {
  std::string name;
  TensorSpec spec;
};

// The model for one set of shapes.
struct ShapeSet {
  std::vector<NamedSpec> inputs, outputs;
  std::shared_ptr<const BoundProgram> program;
};

// Returns the sizes of the memory that the set's program may refer to.
Surroundings around_of(const ShapeSet& set);

struct Artefact {
  std::shared_ptr<const ArtefactFile> file;
  std::string metadata;         // JSON
  std::string instruction_set;  // whose instructions the programs are
  std::vector<ShapeSet> shape_sets;
  std::vector<RangeSet> ranges;  // at least one of both
};

// The weights stay in the file, which is mapped as long as the artefact or one of the programs lives.
// Throws std::system_error where the file can't be read, FormatError and CpuError.
Artefact load_artefact(const std::string& path);

}  // namespace ngraph_mxnet
