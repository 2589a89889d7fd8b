// Features that kernels may use: those that the processor has and the operating system allows.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ngraph_mxnet {

// (LLVM's name of a feature, whether it is there): those that a compiler may be told of, beyond x86-64's own.
std::vector<std::pair<std::string, bool>> cpu_features();

}  // namespace ngraph_mxnet
