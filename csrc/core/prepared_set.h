// Buffer that was prepared from some weights, and the weights' hashes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/content_hash.h"
#include "core/fork_safety.h"

namespace ngraph_mxnet {

struct PreparedSet {
  std::vector<Hash128> hashes;  // of the weights
  std::size_t sightings = 0;          // in how many places holders see these weights; the holders' lock guards it
  bool pending = true;
  std::uint64_t generation = fork_generation();  // an older one's pending set has no thread that prepares it
  std::shared_ptr<const AlignedBuffer> buffer;  // null after a failure
};

}  // namespace ngraph_mxnet
