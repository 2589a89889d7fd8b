// Inputs and expected outputs in the file of a compiled model: its sections REFERENCE, docs/artefact.md.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "artefact/artefact.h"

namespace ngraph_mxnet {

// Arrays for one set of shapes: one for each input and output, of the spec's size and aligned for any element.
struct Reference {
  std::vector<std::vector<char>> inputs, outputs;
};

// Returns the reference that the model's file has for a set of its shapes, or none. Throws FormatError if the reference is
// not what was written: loading does not look at references, because few callers want them.
std::optional<Reference> read_reference(const Artefact& model, std::size_t shape_set);

}  // namespace ngraph_mxnet
