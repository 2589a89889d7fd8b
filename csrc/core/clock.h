// Seconds that only rise.
#pragma once

#include <chrono>

namespace ngraph_mxnet {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ngraph_mxnet
