// The part of `ngraph_mxnet._core` that exposes observers.
#pragma once

#include <pybind11/pybind11.h>

namespace ngraph_mxnet {

// CompiledGraph and Executable are defined before.
void define_observers(pybind11::module_& m);

}  // namespace ngraph_mxnet
