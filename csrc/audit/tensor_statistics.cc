#include "audit/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12 warns of its own header
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic ignored "-Wpsabi"  // functions that take vectors are all inlined

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

namespace {

constexpr std::size_t kLanes = 4;
constexpr double kLargestSquared = 1e140;  // only numbers of f64 are beyond
constexpr std::size_t kPieceBytes = 2 * kBlockBytes;  // read twice, the second time out of the first cache

// By the compiler for each instruction set; the processor at hand chooses when the library is loaded.
#if defined(__GNUC__) && !defined(__clang__)
#define NGRAPH_VECTORIZED __attribute__((target_clones("avx2", "default")))
#else
#define NGRAPH_VECTORIZED
#endif

template <class Element>
using Vector [[gnu::vector_size(kLanes * sizeof(Element))]] = Element;

// How the bits of a float are read, in lanes of signed integers: an infinite magnitude, and the least normal one.
struct Half {
  using Stored = std::int16_t;
  using Word = std::int32_t;
  using Number = float;
  static constexpr Word kMagnitude = 0x7fff, kInfinity = 0x7c00, kNormal = 0x0400;
  [[gnu::always_inline]] static inline Vector<float> numbers(const Vector<Word>& words) {
    // The exponent's bias becomes that of a float by a multiplication, which is exact.
    return reinterpret_cast<Vector<float>>((words & kMagnitude) << 13 | (words & 0x8000) << 16) * 0x1p112f;
  }
};

// The bits of a float type that the processor computes with.
template <class Bits, class Real, Bits infinity, Bits normal>
struct Native {
  using Stored = Bits;
  using Word = Bits;
  using Number = Real;
  static constexpr Word kMagnitude = std::numeric_limits<Bits>::max(), kInfinity = infinity, kNormal = normal;
  [[gnu::always_inline]] static inline Vector<Number> numbers(const Vector<Word>& words) {
    return reinterpret_cast<Vector<Number>>(words);
  }
};

using Single = Native<std::int32_t, float, 0x7f800000, 0x00800000>;
using Double = Native<std::int64_t, double, 0x7ff0000000000000, 0x0010000000000000>;

// The totals of a piece of floats, kept lane by lane.
template <class Float>
struct FloatLanes {
  using Word = typename Float::Word;
  using Number = typename Float::Number;
  static constexpr Number kInfinity = std::numeric_limits<Number>::infinity();

  Vector<Number> low = Vector<Number>{} + kInfinity, high = Vector<Number>{} - kInfinity;
  Vector<double> sums{}, squares{};
  Vector<Word> nans{}, infinities{}, zeros{}, denormals{};

  [[gnu::always_inline]] inline void add(const Vector<Word>& words) {
    const Vector<Word> magnitude = words & Float::kMagnitude;
    const Vector<Word> finite = magnitude < Float::kInfinity;  // a comparison gives -1 where it holds
    const Vector<Number> values = Float::numbers(words);
    const Vector<Number> lows = finite ? values : Vector<Number>{} + kInfinity;
    const Vector<Number> highs = finite ? values : Vector<Number>{} - kInfinity;
    low = lows < low ? lows : low;
    high = highs > high ? highs : high;
    const auto reals = __builtin_convertvector(finite ? values : Vector<Number>{}, Vector<double>);
    sums += reals;
    squares += reals * reals;
    nans -= magnitude > Float::kInfinity;
    infinities -= magnitude == Float::kInfinity;
    zeros -= magnitude == 0;
    denormals -= (magnitude > 0) & (magnitude < Float::kNormal);
  }

  void add_to(Totals* totals) const {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      totals->low = std::min(totals->low, static_cast<double>(low[lane]));
      totals->high = std::max(totals->high, static_cast<double>(high[lane]));
      totals->sum += sums[lane];
      totals->squares += squares[lane];
      totals->nans += static_cast<std::uint64_t>(nans[lane]);
      totals->infinities += static_cast<std::uint64_t>(infinities[lane]);
      totals->zeros += static_cast<std::uint64_t>(zeros[lane]);
      totals->denormals += static_cast<std::uint64_t>(denormals[lane]);
    }
  }
};

template <class Float>
[[gnu::always_inline]] inline void add_floats(const char* data, std::size_t count, Totals* totals) {
  using Stored = typename Float::Stored;
  constexpr std::size_t kBytes = kLanes * sizeof(Stored);
  FloatLanes<Float> lanes;
  const auto add = [&](const char* from, std::size_t bytes, Stored fill) __attribute__((always_inline)) {
    Vector<Stored> stored = Vector<Stored>{} + fill;
    std::memcpy(&stored, from, bytes);
    lanes.add(__builtin_convertvector(stored, Vector<typename Float::Word>));
  };
  for (; count >= kLanes; data += kBytes, count -= kLanes) add(data, kBytes, 0);
  if (count > 0) {  // the lanes beyond have NaN
    add(data, count * sizeof(Stored), static_cast<Stored>(Float::kInfinity + 1));
    totals->nans -= kLanes - count;
  }
  lanes.add_to(totals);
}

template <class Integer>
void add_integers(const char* data, std::size_t count, Totals* totals) {
  Integer low = std::numeric_limits<Integer>::max(), high = std::numeric_limits<Integer>::min();
  double sum = 0, squares = 0;
  std::uint64_t zeros = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Integer value;
    std::memcpy(&value, data + i * sizeof value, sizeof value);
    low = std::min(low, value);
    high = std::max(high, value);
    const auto real = static_cast<double>(value);
    sum += real;
    squares += real * real;
    zeros += value == 0;
  }
  totals->low = std::min(totals->low, static_cast<double>(low));
  totals->high = std::max(totals->high, static_cast<double>(high));
  totals->sum += sum;
  totals->squares += squares;
  totals->zeros += zeros;
}

using Add = void (*)(const char* data, std::size_t count, Totals* totals);

NGRAPH_VECTORIZED void add_f16(const char* data, std::size_t count, Totals* totals) {
  add_floats<Half>(data, count, totals);
}
NGRAPH_VECTORIZED void add_f32(const char* data, std::size_t count, Totals* totals) {
  add_floats<Single>(data, count, totals);
}
NGRAPH_VECTORIZED void add_f64(const char* data, std::size_t count, Totals* totals) {
  add_floats<Double>(data, count, totals);
}

Add adds(const Element& element) {
  if (element.numpy_kind == 'f') return element.size == 2 ? add_f16 : element.size == 4 ? add_f32 : add_f64;
  if (element.numpy_kind == 'i') {
    static constexpr Add kSigned[] = {add_integers<std::int8_t>, add_integers<std::int16_t>, add_integers<std::int32_t>,
                                      add_integers<std::int64_t>};
    return kSigned[element.size == 1 ? 0 : element.size == 2 ? 1 : element.size == 4 ? 2 : 3];
  }
  static constexpr Add kUnsigned[] = {add_integers<std::uint8_t>, add_integers<std::uint16_t>,
                                      add_integers<std::uint32_t>, add_integers<std::uint64_t>};
  return kUnsigned[element.size == 1 ? 0 : element.size == 2 ? 1 : element.size == 4 ? 2 : 3];
}

// Divides the finite f64 numbers by `scale`, then sums them and their squares: some are too large or small to be
// squared.
void scaled_sums(const char* data, std::size_t count, double scale, double* sum, double* squares) {
  *sum = *squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double value;
    std::memcpy(&value, data + i * sizeof value, sizeof value);
    if (!std::isfinite(value)) continue;
    *sum += value / scale;
    *squares += value / scale * (value / scale);
  }
}

// `add_finite` may be null.
void add_piece(Add add, AddFinite add_finite, const char* data, std::size_t count, Totals* totals) {
  const std::size_t steps = add_finite != nullptr ? count / kFiniteStep * kFiniteStep : 0;
  const bool added = steps > 0 && add_finite(data, steps, totals);
  const std::size_t done = added ? steps : 0;
  if (done < count) add(data + done * sizeof(float), count - done, totals);
}

// `hasher` may be null.
TensorStatistics looked_at(const TensorSpec& spec, const char* data, const TensorCode& code, ComparableHasher* hasher) {
  const std::size_t bytes = spec.bytes(), size = spec.element->size, count = bytes / size;
  const bool is_f32 = spec.element->numpy_kind == 'f' && size == sizeof(float);
  const Add add = adds(*spec.element);
  Totals totals;
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    const std::size_t piece = std::min(kPieceBytes, bytes - at);
    add_piece(add, is_f32 ? code.add_finite : nullptr, data + at, piece / size, &totals);
    if (hasher != nullptr) hasher->add(data + at, piece);
  }
  const std::uint64_t finite = count - totals.nans - totals.infinities;
  const double none = std::numeric_limits<double>::quiet_NaN();
  if (finite == 0) return {none, none, none, none, totals.nans, totals.infinities, 0, 0};
  const double largest = std::max({-totals.low, totals.high, 0.0});
  const bool squares_fit = largest == 0 || (largest < kLargestSquared && largest > 1 / kLargestSquared);
  double sum = totals.sum, squares = totals.squares, scale = 1;
  if (!squares_fit) {
    scale = largest;
    scaled_sums(data, count, scale, &sum, &squares);
  }
  return {totals.low, totals.high, sum / static_cast<double>(finite) * scale, std::sqrt(squares) * scale,
          totals.nans, totals.infinities, totals.zeros, totals.denormals};
}

}  // namespace

const std::vector<TensorCode>& tensor_codes() {
  static const std::vector<TensorCode> codes = [] {
    std::vector<TensorCode> found;
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("pclmul");
    const bool wide = avx2 && __builtin_cpu_supports("vpclmulqdq");
    const bool avx512 = wide && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
    if (avx512) found.push_back({"avx512", block_sums_avx512, add_finite_avx512});
    if (wide) found.push_back({"avx2_vpclmulqdq", block_sums_avx2, add_finite_avx2});
    if (avx2) found.push_back({"avx2", block_sums_pclmul, add_finite_avx2});
    found.push_back({"baseline", block_sums_baseline, nullptr});
    return found;
  }();
  return codes;
}

TensorStatistics statistics_of(const TensorSpec& spec, const void* data) {
  return looked_at(spec, static_cast<const char*>(data), tensor_codes().front(), nullptr);
}

TensorContent content_of(const TensorSpec& spec, const void* data, const TensorCode& code) {
  ComparableHasher hasher(code.block_sums);
  const TensorStatistics statistics = looked_at(spec, static_cast<const char*>(data), code, &hasher);
  return {statistics, hasher.finish()};
}

Hash128 comparable_hash(const void* data, std::size_t bytes) {
  ComparableHasher hasher(tensor_codes().front().block_sums);
  hasher.add(static_cast<const char*>(data), bytes);
  return hasher.finish();
}

}  // namespace ngraph_mxnet
