// What is recorded of a tensor: numbers that tell what is in it, and a hash of its content.
#pragma once

#include <cstddef>
#include <cstdint>

#include "content_hash.h"
#include "tensor_spec.h"

namespace ngraph_mxnet {

// `min`, `max`, `mean` and `norm` (the root of the sum of squares) are those of the finite elements; NaN where there are
// none. A denormal is no zero.
struct TensorStatistics {
  double min, max, mean, norm;
  std::uint64_t nans, infinities, zeros, denormals;
};

// Of a dense tensor, in one pass.
TensorStatistics statistics_of(const TensorSpec& spec, const void* data);

// Under a key that everybody knows, so that those of several processes can be compared. It tells contents apart that
// nobody has made to be mistaken for each other.
Hash128 comparable_hash(const void* data, std::size_t bytes);

}  // namespace ngraph_mxnet
