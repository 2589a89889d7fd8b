// Numbers that look random and are the same everywhere, for keys that are published.
#pragma once

#include <cstdint>

namespace ngraph_mxnet {

// splitmix64: the next number, and state.
inline std::uint64_t splitmix64(std::uint64_t* state) {
  std::uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace ngraph_mxnet
