// MXNet's extension graph as JSON.
#pragma once

#include <string>

#include "mxnet_lib_api.h"

namespace ngraph_mxnet {

// Same schema as Graph::toString(), but "nodes" keeps the graph's own order, which is what the ids of
// supportedOps are indexed by; toString() sorts by pointers, anew in every run.
std::string graph_json(const mxnet::ext::Graph& graph);

}  // namespace ngraph_mxnet
