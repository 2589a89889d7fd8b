// Inputs and expected outputs in the file of a compiled model: its sections REFERENCE, docs/artefact.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "artefact.h"

namespace ngraph_mxnet {

// Of one set of shapes: an array for each input and output, of the spec's size and aligned for any element.
struct Reference {
  std::vector<std::unique_ptr<char[]>> inputs, outputs;
};

// What the file of this model has for a set of its shapes, or null. It is read anew, not kept from loading: few want it.
// Throws std::system_error where the file can't be read, and FormatError.
std::unique_ptr<const Reference> read_reference(const std::string& path, const Artefact& model, std::size_t shape_set);

}  // namespace ngraph_mxnet
