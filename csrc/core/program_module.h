// What `ngraph_mxnet._core` exposes of Programs, and of what binds them.
#pragma once

#include <vector>

#include <pybind11/pybind11.h>

#include "core/aligned_buffer.h"
#include "core/bound_program.h"
#include "core/cached_weights.h"

namespace ngraph_mxnet {

// CompiledGraph and Executable are defined before.
void define_programs(pybind11::module_& m);

// In module.cc: a constant, of which a copy is made.
Constant copied(const pybind11::handle& constant, std::vector<AlignedBuffer>* copies);
CachedWeightsOption cached_weights(const pybind11::object& cached);

}  // namespace ngraph_mxnet
