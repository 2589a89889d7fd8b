#include "audit/finite_floats.h"

#include <algorithm>
#include <cmath>

#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns of its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace ngraph_mxnet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int32_t kMagnitude = 0x7fffffff, kNormal = 0x00800000;  // bits of a float: all, and the least normal

}  // namespace

// Each accumulator stands twice, or the next number would wait for the sum with the one before. Where all numbers are
// normal there is nothing to count, which the least magnitude tells.

[[gnu::target("avx2,fma")]] bool add_finite_avx2(const char* data, std::size_t count, Totals* totals) {
  constexpr std::size_t kLanes = 8, kHalf = 4;
  const auto* const from = reinterpret_cast<const float*>(data);
  const __m256i all_magnitude = _mm256_set1_epi32(kMagnitude), normal = _mm256_set1_epi32(kNormal);
  __m256 low = _mm256_set1_ps(kInfinity), high = _mm256_set1_ps(-kInfinity);
  __m256i least = all_magnitude;
  __m256d sums[4] = {}, squares[4] = {};
  for (std::size_t at = 0; at < count; at += 2 * kLanes) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const __m256 values = _mm256_loadu_ps(from + at + i * kLanes);
      least = _mm256_min_epi32(least, _mm256_and_si256(_mm256_castps_si256(values), all_magnitude));
      low = _mm256_min_ps(low, values);
      high = _mm256_max_ps(high, values);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const __m256d reals = _mm256_cvtps_pd(_mm_loadu_ps(from + at + i * kHalf));
      sums[i] = _mm256_add_pd(sums[i], reals);
      squares[i] = _mm256_fmadd_pd(reals, reals, squares[i]);
    }
  }
  alignas(32) double sum[kHalf], square[kHalf];
  _mm256_store_pd(sum, _mm256_add_pd(_mm256_add_pd(sums[0], sums[1]), _mm256_add_pd(sums[2], sums[3])));
  _mm256_store_pd(square, _mm256_add_pd(_mm256_add_pd(squares[0], squares[1]), _mm256_add_pd(squares[2], squares[3])));
  const double all_squares = square[0] + square[1] + square[2] + square[3];
  if (!std::isfinite(all_squares)) return false;  // each finite float can be squared in double
  if (_mm256_movemask_epi8(_mm256_cmpgt_epi32(normal, least)) != 0) {
    std::uint64_t zeros = 0, small = 0;
    for (std::size_t at = 0; at < count; at += kLanes) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
      const __m256i magnitude = _mm256_and_si256(bits, all_magnitude);
      const __m256i is_zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
      const __m256i is_small = _mm256_cmpgt_epi32(normal, magnitude);
      zeros += static_cast<unsigned>(__builtin_popcount(_mm256_movemask_ps(_mm256_castsi256_ps(is_zero))));
      small += static_cast<unsigned>(__builtin_popcount(_mm256_movemask_ps(_mm256_castsi256_ps(is_small))));
    }
    totals->zeros += zeros;
    totals->denormals += small - zeros;
  }
  alignas(32) float lows[kLanes], highs[kLanes];
  _mm256_store_ps(lows, low);
  _mm256_store_ps(highs, high);
  totals->low = std::min<double>(totals->low, *std::min_element(lows, lows + kLanes));
  totals->high = std::max<double>(totals->high, *std::max_element(highs, highs + kLanes));
  totals->sum += sum[0] + sum[1] + sum[2] + sum[3];
  totals->squares += all_squares;
  return true;
}

[[gnu::target("avx512f,avx512dq,popcnt")]] bool add_finite_avx512(const char* data, std::size_t count, Totals* totals) {
  constexpr std::size_t kLanes = 16, kHalf = 8;
  const auto* const from = reinterpret_cast<const float*>(data);
  const __m512i all_magnitude = _mm512_set1_epi32(kMagnitude), normal = _mm512_set1_epi32(kNormal);
  __m512 low = _mm512_set1_ps(kInfinity), high = _mm512_set1_ps(-kInfinity);
  __m512i least = all_magnitude;
  __m512d sums[4] = {}, squares[4] = {};
  for (std::size_t at = 0; at < count; at += 2 * kLanes) {
#pragma GCC unroll 2
    for (std::size_t i = 0; i < 2; ++i) {
      const __m512 values = _mm512_loadu_ps(from + at + i * kLanes);
      least = _mm512_min_epi32(least, _mm512_and_si512(_mm512_castps_si512(values), all_magnitude));
      low = _mm512_min_ps(low, values);
      high = _mm512_max_ps(high, values);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      const __m512d reals = _mm512_cvtps_pd(_mm256_loadu_ps(from + at + i * kHalf));
      sums[i] = _mm512_add_pd(sums[i], reals);
      squares[i] = _mm512_fmadd_pd(reals, reals, squares[i]);
    }
  }
  const double all_squares = _mm512_reduce_add_pd(
      _mm512_add_pd(_mm512_add_pd(squares[0], squares[1]), _mm512_add_pd(squares[2], squares[3])));
  if (!std::isfinite(all_squares)) return false;  // each finite float can be squared in double
  if (_mm512_cmplt_epi32_mask(least, normal) != 0) {
    std::uint64_t zeros = 0, small = 0;
    for (std::size_t at = 0; at < count; at += kLanes) {
      const __m512i magnitude = _mm512_and_si512(_mm512_loadu_si512(from + at), all_magnitude);
      zeros += static_cast<unsigned>(__builtin_popcount(_mm512_testn_epi32_mask(magnitude, magnitude)));
      small += static_cast<unsigned>(__builtin_popcount(_mm512_cmplt_epi32_mask(magnitude, normal)));
    }
    totals->zeros += zeros;
    totals->denormals += small - zeros;
  }
  totals->low = std::min<double>(totals->low, _mm512_reduce_min_ps(low));
  totals->high = std::max<double>(totals->high, _mm512_reduce_max_ps(high));
  totals->sum += _mm512_reduce_add_pd(
      _mm512_add_pd(_mm512_add_pd(sums[0], sums[1]), _mm512_add_pd(sums[2], sums[3])));
  totals->squares += all_squares;
  return true;
}

}  // namespace ngraph_mxnet
