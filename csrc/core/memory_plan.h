// Where the buffers of a Program lie in its arena: the same plan as planning/schedule.py makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ngraph_mxnet {

// A buffer from level `first` to level `last`, both included. Buffers share memory only within a region.
struct Lifetime {
  std::int64_t bytes;
  std::int64_t first, last;
  std::int64_t region;
};

struct MemoryPlan {
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;
};

MemoryPlan plan_memory(const std::vector<Lifetime>& wanted);

}  // namespace ngraph_mxnet
