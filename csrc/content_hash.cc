#include "content_hash.h"

#include <cstring>

namespace ngraph_mxnet {
namespace {

constexpr std::uint64_t kOdd[] = {0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f, 0xd6e8feb86659fd93,
                                  0xa0761d6478bd642f};
constexpr std::size_t kLanes = 4;
constexpr std::size_t kBlock = kLanes * 16;
constexpr std::size_t kSamples = 4;

std::uint64_t word_at(const char* p) {
  std::uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Both halves of the product, so that high bits reach low ones.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// The rotated lane is added so that a factor of zero loses only these two words.
std::uint64_t mix(std::uint64_t lane, std::uint64_t a, std::uint64_t b, std::uint64_t odd) {
  return ((lane << 29) | (lane >> 35)) + fold(a ^ odd, b ^ lane);
}

}  // namespace

std::uint64_t content_hash(const void* data, std::size_t bytes) {
  // No lane starts at its own constant: exchanging its first two words would then not show.
  std::uint64_t lanes[kLanes] = {kOdd[1] ^ bytes, kOdd[2], kOdd[3], kOdd[0]};
  const char* p = static_cast<const char*>(data);
  std::size_t left = bytes;
  for (; left >= kBlock; p += kBlock, left -= kBlock) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      lanes[i] = mix(lanes[i], word_at(p + 16 * i), word_at(p + 16 * i + 8), kOdd[i]);
    }
  }
  if (left > 0) {
    char tail[kBlock] = {};
    std::memcpy(tail, p, left);
    for (std::size_t i = 0; i < kLanes; ++i) {
      lanes[i] = mix(lanes[i], word_at(tail + 16 * i), word_at(tail + 16 * i + 8), kOdd[i]);
    }
  }
  std::uint64_t hash = bytes;
  for (std::size_t i = 0; i < kLanes; ++i) hash = mix(hash, lanes[i], kOdd[(i + 1) % kLanes], kOdd[i]);
  return fold(hash ^ kOdd[0], kOdd[1]);
}

std::uint64_t sample_hash(const void* data, std::size_t bytes) {
  if (bytes <= kBlock) return content_hash(data, bytes);
  std::uint64_t words[kSamples];
  const char* p = static_cast<const char*>(data);
  const std::size_t last = bytes - sizeof(std::uint64_t);
  for (std::size_t i = 0; i < kSamples; ++i) words[i] = word_at(p + last * i / (kSamples - 1));
  return content_hash(words, sizeof words);
}

}  // namespace ngraph_mxnet
