// What `ngraph_mxnet._core` exposes of observers.
#pragma once

#include <pybind11/pybind11.h>

namespace ngraph_mxnet {

// CompiledGraph and Executable are defined before.
void define_observers(pybind11::module_& m);

}  // namespace ngraph_mxnet
