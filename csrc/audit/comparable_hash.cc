#include "audit/comparable_hash.h"

#include <algorithm>
#include <cstring>

#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns of its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace ngraph_mxnet {

namespace {

constexpr std::size_t kRowWords = kRowBytes / sizeof(std::uint64_t);

class Rows {
 public:
  Rows(const char* data, std::size_t bytes)
      : data_(data), whole_(bytes / kRowBytes), count_((bytes + kRowBytes - 1) / kRowBytes) {
    if (count_ == whole_) return;
    std::memset(last_, 0, sizeof last_);
    std::memcpy(last_, data + whole_ * kRowBytes, bytes - whole_ * kRowBytes);
  }
  std::size_t count() const { return count_; }
  const char* at(std::size_t row) const { return row < whole_ ? data_ + row * kRowBytes : last_; }

 private:
  const char* data_;
  std::size_t whole_, count_;
  alignas(64) char last_[kRowBytes];
};

// Multiplies two polynomials over GF(2), four coefficients at once.
unsigned __int128 product_of(std::uint64_t a, std::uint64_t b) {
  unsigned __int128 multiples[16] = {0, a};
  for (unsigned i = 2; i < 16; ++i) multiples[i] = multiples[i / 2] << 1 ^ multiples[i % 2];
  unsigned __int128 product = 0;
  for (int shift = 60; shift >= 0; shift -= 4) product = product << 4 ^ multiples[b >> shift & 15];
  return product;
}

// The sum over the lanes.
template <std::size_t words>
BlockSums over_lanes(const std::uint64_t (&first)[words], const std::uint64_t (&second)[words]) {
  BlockSums sums;
  for (std::size_t i = 0; i < words; ++i) {
    sums.first[i % 2] ^= first[i];
    sums.second[i % 2] ^= second[i];
  }
  return sums;
}

}  // namespace

BlockSums block_sums_baseline(const char* data, std::size_t bytes, const std::uint64_t* key) {
  const Rows rows(data, bytes);
  std::uint64_t first[2] = {}, second[2] = {};
  for (std::size_t begin = 0; begin < rows.count(); begin += kGroupRows, key += kGroupKeyWords) {
    const std::size_t end = std::min(begin + kGroupRows, rows.count());
    std::uint64_t check[kRowWords] = {}, group[2] = {};
    for (std::size_t row = begin; row <= end; ++row) {
      std::uint64_t words[kRowWords];
      std::memcpy(words, row < end ? rows.at(row) : reinterpret_cast<const char*>(check), sizeof words);
      for (std::uint64_t& word : group) word <<= 1;
      for (std::size_t i = 0; i < kRowWords; i += 2) {
        const std::uint64_t* const of_key = key + (row - begin) * kRowWords + i;
        const unsigned __int128 product = product_of(words[i] ^ of_key[0], words[i + 1] ^ of_key[1]);
        for (std::size_t half = 0; half < 2; ++half) {
          const auto word = static_cast<std::uint64_t>(product >> (64 * half));
          first[half] ^= word;
          group[half] ^= word;
          check[i + half] ^= words[i + half];
        }
      }
    }
    for (std::size_t half = 0; half < 2; ++half) second[half] ^= group[half];
  }
  return over_lanes(first, second);
}

[[gnu::target("pclmul")]] BlockSums block_sums_pclmul(const char* data, std::size_t bytes, const std::uint64_t* key) {
  constexpr std::size_t kParts = kRowBytes / sizeof(__m128i);
  const Rows rows(data, bytes);
  __m128i first = _mm_setzero_si128(), second = first;
  for (std::size_t begin = 0; begin < rows.count(); begin += kGroupRows, key += kGroupKeyWords) {
    const std::size_t end = std::min(begin + kGroupRows, rows.count());
    __m128i check[kParts] = {}, group = _mm_setzero_si128();
    for (std::size_t row = begin; row <= end; ++row) {
      const auto* const from = reinterpret_cast<const __m128i*>(row < end ? rows.at(row) : nullptr);
      const auto* const of_key = reinterpret_cast<const __m128i*>(key + (row - begin) * kRowWords);
      group = _mm_slli_epi64(group, 1);
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kParts; ++i) {
        const __m128i words = row < end ? _mm_loadu_si128(from + i) : check[i];
        const __m128i factors = _mm_xor_si128(words, _mm_loadu_si128(of_key + i));
        const __m128i product = _mm_clmulepi64_si128(factors, factors, 1);
        check[i] = _mm_xor_si128(check[i], words);
        first = _mm_xor_si128(first, product);
        group = _mm_xor_si128(group, product);
      }
    }
    second = _mm_xor_si128(second, group);
  }
  std::uint64_t firsts[2], seconds[2];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(firsts), first);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(seconds), second);
  return over_lanes(firsts, seconds);
}

[[gnu::target("avx2,vpclmulqdq")]] BlockSums block_sums_avx2(const char* data, std::size_t bytes,
                                                             const std::uint64_t* key) {
  constexpr std::size_t kParts = kRowBytes / sizeof(__m256i);
  const Rows rows(data, bytes);
  __m256i first = _mm256_setzero_si256(), second = first;
  for (std::size_t begin = 0; begin < rows.count(); begin += kGroupRows, key += kGroupKeyWords) {
    const std::size_t end = std::min(begin + kGroupRows, rows.count());
    __m256i check[kParts] = {}, group = _mm256_setzero_si256();
    for (std::size_t row = begin; row <= end; ++row) {
      const auto* const from = reinterpret_cast<const __m256i*>(row < end ? rows.at(row) : nullptr);
      const auto* const of_key = reinterpret_cast<const __m256i*>(key + (row - begin) * kRowWords);
      group = _mm256_slli_epi64(group, 1);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kParts; ++i) {
        const __m256i words = row < end ? _mm256_loadu_si256(from + i) : check[i];
        const __m256i factors = _mm256_xor_si256(words, _mm256_loadu_si256(of_key + i));
        const __m256i product = _mm256_clmulepi64_epi128(factors, factors, 1);
        check[i] = _mm256_xor_si256(check[i], words);
        first = _mm256_xor_si256(first, product);
        group = _mm256_xor_si256(group, product);
      }
    }
    second = _mm256_xor_si256(second, group);
  }
  std::uint64_t firsts[4], seconds[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(firsts), first);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(seconds), second);
  return over_lanes(firsts, seconds);
}

[[gnu::target("avx512f,vpclmulqdq")]] BlockSums block_sums_avx512(const char* data, std::size_t bytes,
                                                                  const std::uint64_t* key) {
  constexpr int kSum = 0x96;  // of three
  const Rows rows(data, bytes);
  __m512i first = _mm512_setzero_si512(), second = first;
  for (std::size_t begin = 0; begin < rows.count(); begin += kGroupRows, key += kGroupKeyWords) {
    const std::size_t end = std::min(begin + kGroupRows, rows.count());
    __m512i low_check = _mm512_setzero_si512(), high_check = low_check, group = low_check;
    for (std::size_t row = begin; row <= end; ++row) {
      const char* const from = row < end ? rows.at(row) : nullptr;
      const std::uint64_t* const of_key = key + (row - begin) * kRowWords;
      const __m512i low = row < end ? _mm512_loadu_si512(from) : low_check;
      const __m512i high = row < end ? _mm512_loadu_si512(from + kRowBytes / 2) : high_check;
      const __m512i low_factors = _mm512_xor_si512(low, _mm512_loadu_si512(of_key));
      const __m512i high_factors = _mm512_xor_si512(high, _mm512_loadu_si512(of_key + kRowWords / 2));
      const __m512i low_products = _mm512_clmulepi64_epi128(low_factors, low_factors, 1);
      const __m512i high_products = _mm512_clmulepi64_epi128(high_factors, high_factors, 1);
      low_check = _mm512_xor_si512(low_check, low);
      high_check = _mm512_xor_si512(high_check, high);
      first = _mm512_ternarylogic_epi64(first, low_products, high_products, kSum);
      group = _mm512_ternarylogic_epi64(_mm512_slli_epi64(group, 1), low_products, high_products, kSum);
    }
    second = _mm512_xor_si512(second, group);
  }
  std::uint64_t firsts[8], seconds[8];
  _mm512_storeu_si512(firsts, first);
  _mm512_storeu_si512(seconds, second);
  return over_lanes(firsts, seconds);
}

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
