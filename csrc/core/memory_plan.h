// Places of a Program's buffers in its arena.
#pragma once

#include <cstdint>
#include <vector>

namespace ngraph_mxnet {

// A buffer from level `first` to level `last`, both included. Buffers share memory only within a region: images of one
// geometry with a zero halo make one, and leave the halo's bytes alone, so that zeros written once stay.
struct Lifetime {
  std::int64_t bytes;
  std::int64_t first, last;
  std::int64_t region;
};

// Levels: buffers that live for fewer are found by level, others are looked through.
constexpr std::int64_t kShortLife = 8;

struct MemoryPlan {
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;
};

// One region follows the other. Greedy by size: offline allocation is NP-hard, and this order is within a few percent of the
// lower bound on networks' graphs.
MemoryPlan plan_memory(const std::vector<Lifetime>& wanted);

// The most bytes alive at one level: no plan can be smaller.
std::int64_t peak_bytes(const std::vector<Lifetime>& lives);

// With memory of its own for each.
std::int64_t separate_bytes(const std::vector<Lifetime>& lives);

}  // namespace ngraph_mxnet
