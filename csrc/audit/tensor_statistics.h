// The record of a tensor: numbers that tell what is in it, and a hash of its content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "audit/comparable_hash.h"
#include "core/tensor_spec.h"

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

// `min`, `max`, `mean` and `norm` (the root of the sum of squares) are those of the finite elements; NaN where there
// are none. A denormal is no zero.
struct TensorStatistics {
  double min, max, mean, norm;
  std::uint64_t nans, infinities, zeros, denormals;
};

struct TensorContent {
  TensorStatistics statistics;
  Hash128 hash;
};

// The functions that look at tensors, in the instructions of one kind of processor. All codes give the same hashes.
// Their statistics are the same but for the rounding of sums.
struct TensorCode {
  const char* name;
  BlockSumsOf block_sums;
  AddFinite add_finite;  // null: there is none
};

// Returns the codes that this processor can run, the fastest first.
const std::vector<TensorCode>& tensor_codes();

// Returns the record of a dense tensor, made in one pass. Only an f64 tensor whose numbers are too large or too small
// to be squared is read a second time.
TensorStatistics statistics_of(const TensorSpec& spec, const void* data);
TensorContent content_of(const TensorSpec& spec, const void* data, const TensorCode& code = tensor_codes().front());

// The hash alone.
Hash128 comparable_hash(const void* data, std::size_t bytes);

}  // namespace ngraph_mxnet
