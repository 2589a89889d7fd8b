// The kernels that were compiled when the package was built.
#pragma once

#include <cstdint>
#include <string>

namespace ngraph_mxnet {

// The address of a kernel in libngraph_kernels.so, which lies beside this extension.
// Throws std::out_of_range when there is no such kernel or no such library.
std::uintptr_t kernel_address(const std::string& symbol);

}  // namespace ngraph_mxnet
