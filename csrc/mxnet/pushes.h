// The calls that hand a graph to MXNet: in turns, and past its op where that is possible.
#pragma once

#include <string>
#include <vector>

#include "mxnet/engine.h"
#include "mxnet/libmxnet.h"

namespace ngraph_mxnet {
namespace pushes {

// Returns the functions of libmxnet that run executors and cached ops, to be called by way of ours: name, and address of
// ours.
Replacements replacements();

// The outputs of a cached op that runs past MXNet's, in handles that are the caller's then; none: it can't now.
std::vector<engine::Handle> call(engine::Handle op, const std::vector<engine::Handle>& inputs);

}  // namespace pushes
}  // namespace ngraph_mxnet
