// The models of a compiled file for ranges of sizes, at given sizes.
#pragma once

#include "artefact/artefact.h"

namespace ngraph_mxnet {

// What runs inputs of these shapes, of the first range that allows them. Its instructions are checked as those of a
// file. Throws std::invalid_argument that says which input does not fit, what was found and what is expected, or what a guard
// wants.
ShapeSet bind_range(const Artefact& artefact, const Shapes& shapes);

// As texts for people: "[N,3,H,W] with N 1..32, H 8..".
std::string range_str(const RangePort& port, const RangeSet& set);

}  // namespace ngraph_mxnet
