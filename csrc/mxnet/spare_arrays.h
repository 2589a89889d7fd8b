// Large arrays that are used again when nobody has them any more.
#pragma once

#include <memory>
#include <vector>

#include "core/fork_safety.h"
#include "core/tensor_spec.h"
#include "mxnet/direct_runs.h"

namespace ngraph_mxnet {

// MXNet's CPU storage gives freed memory back to the system, and the pages of a new array of 45 MB take longer to get than
// most kernels take to fill it.
class SpareArrays {
 public:
  // Adds an array of this type, whose elements are anything. False when MXNet has failed.
  bool add_new(Arrays* arrays, const TensorSpec& spec, engine::Device device);

 private:
  static constexpr std::size_t kLarge = std::size_t{1} << 20;  // bytes
  static constexpr std::size_t kMost = 2;                      // of a type: one is often dropped when the next is there

  struct Spare {
    TensorSpec spec;
    engine::Device device;
    std::unique_ptr<Arrays> array;
  };

  ForkSafeMutex mutex_{Rank::kSpareArrays};
  std::vector<Spare> spares_;
};

}  // namespace ngraph_mxnet
