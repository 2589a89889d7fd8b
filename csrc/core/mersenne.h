// Arithmetic modulo the prime 2^127 - 1, of which hashes make polynomials.
#pragma once

#include <cstdint>

namespace ngraph_mxnet {

using Wide = unsigned __int128;

constexpr Wide kPrime = (Wide{1} << 127) - 1;

// The low word first.
inline Wide wide(const std::uint64_t* words) { return Wide{words[1]} << 64 | words[0]; }

// Any number, modulo kPrime.
inline Wide reduce(Wide x) {
  x = (x & kPrime) + (x >> 127);
  return x >= kPrime ? x - kPrime : x;
}

// Both below 2^127.
inline Wide multiply(Wide a, Wide b) {
  const auto a0 = static_cast<std::uint64_t>(a), a1 = static_cast<std::uint64_t>(a >> 64);
  const auto b0 = static_cast<std::uint64_t>(b), b1 = static_cast<std::uint64_t>(b >> 64);
  const Wide low = Wide{a0} * b0;
  const Wide middle = Wide{a0} * b1 + (low >> 64);  // the factors' high words are below 2^63: nothing overflows
  const Wide cross = Wide{a1} * b0 + static_cast<std::uint64_t>(middle);
  const Wide high = Wide{a1} * b1 + (middle >> 64) + (cross >> 64);
  const Wide lowest = cross << 64 | static_cast<std::uint64_t>(low);
  return reduce(reduce(lowest) + (high << 1));  // 2^128 = 2
}

}  // namespace ngraph_mxnet
