// The models of a compiled file for ranges of sizes, at given sizes.
#pragma once

#include "artefact/artefact.h"

namespace ngraph_mxnet {

// Returns a ShapeSet that runs inputs of these shapes, from the first range that allows them. Checks the set's instructions
// as those of a file. Throws std::invalid_argument that says which input does not fit, what was found and what is expected,
// or what a guard wants.
ShapeSet bind_range(const Artefact& artefact, const Shapes& shapes);

// Returns the sizes of `port` as text for people: "[N,3,H,W] with N 1..32, H 8..".
std::string range_str(const RangePort& port, const RangeSet& set);

}  // namespace ngraph_mxnet
