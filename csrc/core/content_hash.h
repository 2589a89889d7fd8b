// Fast hashes of memory, for recognising content, and the arithmetic that they are made of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ngraph_mxnet {

// splitmix64: the next number, and state.
inline std::uint64_t splitmix64(std::uint64_t* state) {
  std::uint64_t z = *state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

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

struct Hash128 {
  std::uint64_t low, high;
  bool operator==(const Hash128& other) const { return low == other.low && high == other.high; }
  bool operator!=(const Hash128& other) const { return !(*this == other); }
};

// A keyed hash that stands for content: whoever does not know the key finds two contents of the same hash with a
// probability below 2^-100 a pair, for up to 2^40 bytes each, whatever the contents are. Thread safe.
//
// It is NH with two Toeplitz keys over blocks of 1 KiB, then a polynomial modulo 2^127 - 1 for each, as in UMAC and
// VMAC (Black et al., 1999; Krovetz and Dai, 2007). Such a hash is no MAC: with hashes of known content the key can be
// worked out, so they must not be shown to strangers.
class ContentHasher {
 public:
  static constexpr std::size_t kBlockWords = 128;
  static constexpr std::size_t kKeyWords = kBlockWords + 2 + 3 * 2;
  using Key = std::array<std::uint64_t, kKeyWords>;  // uniformly random

  explicit ContentHasher(const Key& key);

  // With a key drawn at random by this process: for what does not outlive it. A forked child has the same.
  // Throws std::runtime_error where the system has no random numbers.
  static const ContentHasher& of_process();

  Hash128 operator()(const void* data, std::size_t bytes) const;

 private:
  Key key_;
};

// That of the process.
inline Hash128 content_hash128(const void* data, std::size_t bytes) {
  return ContentHasher::of_process()(data, bytes);
}

}  // namespace ngraph_mxnet
