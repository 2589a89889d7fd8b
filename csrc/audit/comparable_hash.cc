#include "audit/comparable_hash.h"

#include <algorithm>
#include <cstdint>

namespace ngraph_mxnet {
namespace {

struct Key {
  std::uint64_t of_blocks[kBlockKeyWords];
  Wide factors[3];
};

const Key& key() {
  static const Key made = [] {
    Key key;
    std::uint64_t state = 0;
    for (std::uint64_t& word : key.of_blocks) word = splitmix64(&state);
    for (Wide& factor : key.factors) {
      const std::uint64_t words[] = {splitmix64(&state), splitmix64(&state)};  // braces: the first is made first
      factor = reduce(wide(words));
    }
    return key;
  }();
  return made;
}

}  // namespace

void ComparableHasher::add(const char* data, std::size_t bytes) {
  const Key& with = key();
  bytes_ += bytes;
  while (bytes > 0) {
    const std::size_t size = std::min(bytes, kBlockBytes);
    const BlockSums sums = block_sums_(data, size, with.of_blocks);
    first_ = reduce(multiply(first_, with.factors[0]) + reduce(wide(sums.first)));
    second_ = reduce(multiply(second_, with.factors[1]) + reduce(wide(sums.second)));
    data += size;
    bytes -= size;
  }
}

Hash128 ComparableHasher::finish() const {
  const Wide* const factors = key().factors;
  const Wide first = reduce(multiply(first_, factors[0]) + bytes_);
  const Wide second = reduce(multiply(second_, factors[1]) + bytes_);
  const Wide hash = reduce(multiply(first, factors[2]) + second);
  return {static_cast<std::uint64_t>(hash), static_cast<std::uint64_t>(hash >> 64)};
}

}  // namespace ngraph_mxnet
