// What the processor and the operating system let kernels use.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ngraph_mxnet {

// (LLVM's name of a feature, whether it is there): those that a compiler may be told of, beyond x86-64's own.
std::vector<std::pair<std::string, bool>> cpu_features();

}  // namespace ngraph_mxnet
