// Part of `ngraph_mxnet._core` that exposes Programs and the Binder.
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
