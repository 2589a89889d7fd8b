// Sums of carry-less products over blocks of memory, in the instructions of several processors.
#pragma once

#include <cstddef>
#include <cstdint>

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

// Of at most kBlockBytes, under a key of kBlockKeyWords. A last row that is not whole is filled with zeros.
//
// A group's rows, and the exclusive or of them behind the last, are added to a row of the key each; a lane's product is
// that of its two words then, as polynomials. `first` is the sum of all products. `second` is the sum over the groups
// of x^(rows - i) * product i, for which each word is shifted by itself and loses what leaves it.
//
// Two contents of the same length have both sums equal, for keys drawn at random, with a probability of at most 2^-114:
// where they differ, some lane of some group does, and in it two of the products at least are of other factors, for the
// row behind the last is a check (Nandi, 2014: encode, hash, combine). Given all others, equal sums are two linear
// equations in the differences of these two products, with powers of x, a < b, that have at most 2^(2a) <= 2^14
// solutions; and a product's difference is any given number with a probability of at most 2^-64, independently of the
// other's, for their keys are (NH: Black et al., 1999; over GF(2): Lemire and Kaser, 2016).
using BlockSumsOf = BlockSums (*)(const char* data, std::size_t bytes, const std::uint64_t* key);

// They all give the same. The others need these instructions of the processor.
BlockSums block_sums_baseline(const char* data, std::size_t bytes, const std::uint64_t* key);
BlockSums block_sums_pclmul(const char* data, std::size_t bytes, const std::uint64_t* key);
BlockSums block_sums_avx2(const char* data, std::size_t bytes, const std::uint64_t* key);    // and VPCLMULQDQ
BlockSums block_sums_avx512(const char* data, std::size_t bytes, const std::uint64_t* key);  // and VPCLMULQDQ

}  // namespace ngraph_mxnet
