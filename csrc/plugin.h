// The MXNet side's counters, for Python.
#pragma once

#include <cstddef>

namespace ngraph_mxnet {

// How often an NGraphSubgraphOp ran in this process.
std::size_t op_calls();

}  // namespace ngraph_mxnet
