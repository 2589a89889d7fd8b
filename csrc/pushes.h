// The calls that hand a graph to MXNet: in turns, and past its op where that is possible.
#pragma once

#include <string>

#include "libmxnet.h"

namespace ngraph_mxnet {
namespace pushes {

// Finds the functions in libmxnet, which this process has loaded from `path`. Throws std::runtime_error.
void connect(const std::string& path);

// As `mxnet_writers::replacements`.
Replacements replacements();

}  // namespace pushes
}  // namespace ngraph_mxnet
