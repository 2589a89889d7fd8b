// A hash of memory that stands for content in files: the same in all processes and on all processors.
#pragma once

#include <cstddef>

#include "audit/block_sums.h"
#include "core/content_hash.h"

namespace ngraph_mxnet {

// Under a key that everybody knows: it tells contents apart that nobody has made to be mistaken for each other. For these
// the probability of the same hash is below 2^-100 a pair, for up to 2^40 bytes each: that of equal sums of a block, see
// BlockSumsOf, and of equal polynomials modulo 2^127 - 1 of the blocks' sums (Krovetz and Dai, 2007), as in ContentHasher.
class ComparableHasher {
 public:
  // Rises whenever equal contents get other hashes than before.
  static constexpr int kVersion = 2;

  explicit ComparableHasher(BlockSumsOf block_sums) : block_sums_(block_sums) {}

  // More of the content. What is added before the last piece is a multiple of kBlockBytes.
  void add(const char* data, std::size_t bytes);

  Hash128 finish() const;

 private:
  BlockSumsOf block_sums_;
  Wide first_ = 1, second_ = 1;
  std::size_t bytes_ = 0;
};

}  // namespace ngraph_mxnet
