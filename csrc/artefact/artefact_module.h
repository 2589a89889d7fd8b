// Part of `ngraph_mxnet._core` that exposes compiled files.
#pragma once

#include <pybind11/pybind11.h>

namespace ngraph_mxnet {

// CompiledGraph is defined before.
void define_artefacts(pybind11::module_& m);

}  // namespace ngraph_mxnet
