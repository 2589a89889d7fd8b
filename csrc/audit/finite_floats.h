// Totals of float32 numbers of which none is NaN or infinite, in the instructions of several processors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace ngraph_mxnet {

// `low`, `high`, `sum` and `squares` are those of finite elements.
struct Totals {
  double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0, squares = 0;
  std::uint64_t nans = 0, infinities = 0, zeros = 0, denormals = 0;
};

// How many numbers are added at once.
constexpr std::size_t kFiniteStep = 32;

// Adds `count` of them, a multiple of kFiniteStep and below 2^31; adds nothing and returns false if one is NaN or
// infinite. Sums are of doubles.
using AddFinite = bool (*)(const char* data, std::size_t count, Totals* totals);

bool add_finite_avx2(const char* data, std::size_t count, Totals* totals);  // and FMA
bool add_finite_avx512(const char* data, std::size_t count, Totals* totals);

}  // namespace ngraph_mxnet
