// Geometry of contractions as tables of byte offsets, made for given sizes (microkernels/tables.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned_buffer.h"

namespace ngraph_mxnet {

constexpr std::size_t kPixelNumbers = 19, kStepNumbers = 11;

// As `pixel_table` and `step_table` of these numbers, whatever they are. Both throw std::invalid_argument for a table of more
// entries than a tensor of 2 GiB has, or with offsets beyond it.
AlignedBuffer pixel_table(const std::vector<std::int64_t>& numbers);
AlignedBuffer step_table(const std::vector<std::int64_t>& numbers);

}  // namespace ngraph_mxnet
