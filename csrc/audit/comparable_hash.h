// A hash of memory that stands for content in files: the same in all processes and on all processors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/content_hash.h"

namespace ngraph_mxnet {

constexpr std::size_t kRowBytes = 128;     // eight lanes of 16 bytes
constexpr std::size_t kGroupRows = 8;
constexpr std::size_t kGroupBytes = kGroupRows * kRowBytes;
constexpr std::size_t kBlockBytes = 4 * kGroupBytes;
constexpr std::size_t kGroupKeyWords = (kGroupRows + 1) * kRowBytes / sizeof(std::uint64_t);
constexpr std::size_t kBlockKeyWords = kBlockBytes / kGroupBytes * kGroupKeyWords;

// Two polynomials over GF(2), of 128 coefficients each; the low word first.
struct BlockSums {
  std::uint64_t first[2] = {}, second[2] = {};
};

// A function that computes the sums of at most kBlockBytes, under a key of kBlockKeyWords. A last row that is not whole
// is filled with zeros.
//
// Behind the last row of a group comes a check row: the exclusive or of the group's rows. Each of these rows is added
// to its own row of the key. The product of a lane is then the product of its two words, as polynomials. `first` is the
// sum of all products. `second` is the sum over the groups of x^(rows - i) * product i. Each word of `second` is
// shifted by itself, and loses the bits that leave it.
//
// Two contents of the same length have both sums equal with a probability of at most 2^-114, for keys drawn at random.
// The reasons are these. Contents that differ do so in some lane of some group. In this lane at least two products have
// other factors, because a change of one row alone changes the check row, too (Nandi, 2014: encode, hash, combine).
// Given all other products, equal sums are two linear equations in the differences of these two. The equations have
// powers of x, a < b, and at most 2^(2a) <= 2^14 solutions. The difference of a product is any given number with a
// probability of at most 2^-64 (NH: Black et al., 1999; over GF(2): Lemire and Kaser, 2016). The two differences are
// independent, because their keys are.
using BlockSumsOf = BlockSums (*)(const char* data, std::size_t bytes, const std::uint64_t* key);

// They all give the same. The others need these instructions of the processor.
BlockSums block_sums_baseline(const char* data, std::size_t bytes, const std::uint64_t* key);
BlockSums block_sums_pclmul(const char* data, std::size_t bytes, const std::uint64_t* key);
BlockSums block_sums_avx2(const char* data, std::size_t bytes, const std::uint64_t* key);    // and VPCLMULQDQ
BlockSums block_sums_avx512(const char* data, std::size_t bytes, const std::uint64_t* key);  // and VPCLMULQDQ

// Under a key that everybody knows: it tells contents apart that nobody has made to be mistaken for each other. For
// these the probability of the same hash is below 2^-100 a pair, for up to 2^40 bytes each: that of equal sums of a
// block, see BlockSumsOf, and of equal polynomials modulo 2^127 - 1 of the blocks' sums (Krovetz and Dai, 2007), as in
// ContentHasher.
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
