#include "mxnet/spare_arrays.h"

#include <mutex>
#include <utility>

#include "mxnet/array_view.h"

namespace ngraph_mxnet {

bool SpareArrays::add_new(Arrays* arrays, const TensorSpec& spec, engine::Device device) {
  if (spec.bytes() < kLarge) return arrays->add_new(spec, device);
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  std::size_t count = 0;
  for (const Spare& spare : spares_) {
    if (spare.spec.element != spec.element || spare.spec.shape != spec.shape || !(spare.device == device)) continue;
    const engine::Handle array = spare.array->handles().front();
    if (ArrayView(array).is_only()) return arrays->add_same(array);
    ++count;
  }
  if (!arrays->add_new(spec, device)) return false;
  auto kept = std::make_unique<Arrays>();
  if (count < kMost && kept->add_same(arrays->handles().back())) spares_.push_back({spec, device, std::move(kept)});
  return true;
}

}  // namespace ngraph_mxnet
