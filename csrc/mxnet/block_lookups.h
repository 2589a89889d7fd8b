// Gluon's look-ups on the way from a block's `__call__` to its cached op, compared with what they found before.
#pragma once

#include <pybind11/pybind11.h>

namespace ngraph_mxnet {

void define_block_lookups(pybind11::module_& m);

}  // namespace ngraph_mxnet
