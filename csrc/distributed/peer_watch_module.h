// The part of `ngraph_mxnet._core` that exposes the watch on a job's ranks.
#pragma once

#include <pybind11/pybind11.h>

namespace ngraph_mxnet {

void define_peer_watch(pybind11::module_& m);

}  // namespace ngraph_mxnet
