// A compiled model in a file, and the model at given sizes: docs/artefact.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artefact/artefact_file.h"
#include "artefact/program_reader.h"
#include "core/bound_program.h"
#include "core/tensor_spec.h"

namespace ngraph_mxnet {

struct NamedSpec {
  std::string name;
  TensorSpec spec;
};

// The model for one set of shapes.
struct ShapeSet {
  std::vector<NamedSpec> inputs, outputs;
  std::shared_ptr<const BoundProgram> program;
};

Shapes input_shapes(const ShapeSet& set);

// Binds the Program of a set without symbols, and checks its instructions. Throws std::invalid_argument.
ShapeSet bind_shapes(ProgramSet set);

// Returns a ShapeSet that runs inputs of these shapes, from the first range that allows them. Checks the set's
// instructions as those of a file. Throws std::invalid_argument that says which input does not fit, what was found and
// what is expected, or what a guard wants. `others`, the model's sets of shapes, are expected, too; the model has a set
// or a range.
ShapeSet bind_range(const std::vector<ProgramSet>& ranges, const std::vector<ShapeSet>& others, const Shapes& shapes);

// Returns the sizes of `port` as text for people: "[N,3,H,W] with N 1..32, H 8..".
std::string range_str(const Port& port, const ProgramSet& set);

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
