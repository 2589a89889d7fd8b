// The calls that hand a graph to MXNet: in turns, and past its op where that is possible.
#pragma once

#include <string>
#include <vector>

#include "mxnet/engine.h"
#include "mxnet/libmxnet.h"

namespace ngraph_mxnet {
namespace pushes {

// Finds the functions in libmxnet, which this process has loaded from `path`. Throws std::runtime_error.
void connect(const std::string& path);

// As `mxnet_writers::replacements`.
Replacements replacements();

// The outputs of a cached op that runs past MXNet's, in handles that are the caller's then; none: it can't now.
std::vector<engine::Handle> call(engine::Handle op, const std::vector<engine::Handle>& inputs);

}  // namespace pushes
}  // namespace ngraph_mxnet
