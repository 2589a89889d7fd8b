// The part of `ngraph_mxnet._core` that exposes results that are final while their graph runs.
#pragma once

#include <pybind11/pybind11.h>

namespace ngraph_mxnet {

void define_result_watch(pybind11::module_& m);

}  // namespace ngraph_mxnet
