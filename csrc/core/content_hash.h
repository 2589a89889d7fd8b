// Fast hashes of memory, for recognising content.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ngraph_mxnet {

struct Hash128 {
  std::uint64_t low, high;
  bool operator==(const Hash128& other) const { return low == other.low && high == other.high; }
  bool operator!=(const Hash128& other) const { return !(*this == other); }
};

// A keyed hash that stands for content: whoever does not know the key finds two contents of the same hash with a
// probability below 2^-100 a pair, for up to 2^40 bytes each, whatever the contents are. Thread safe.
//
// It is NH with two Toeplitz keys over blocks of 1 KiB, then a polynomial modulo 2^127 - 1 for each, as in UMAC and VMAC
// (Black et al., 1999; Krovetz and Dai, 2007). Such a hash is no MAC: with hashes of known content the key can be worked
// out, so they must not be shown to strangers.
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
