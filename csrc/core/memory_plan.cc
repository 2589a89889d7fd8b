#include "core/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "core/aligned_buffer.h"

namespace ngraph_mxnet {
namespace {

constexpr std::int64_t kStep = kAlignment;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

struct Placed {
  std::int64_t begin, end;
  std::int64_t first, last;

  bool operator<(const Placed& other) const {
    if (begin != other.begin) return begin < other.begin;
    if (end != other.end) return end < other.end;
    return first != other.first ? first < other.first : last < other.last;
  }
};

// The largest buffer first, each at the lowest gap among those it meets. Returns the region's size.
std::int64_t place(const std::vector<Lifetime>& wanted, std::vector<std::size_t> members, std::int64_t base,
                   std::vector<std::int64_t>* offsets) {
  std::stable_sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
    return wanted[a].bytes != wanted[b].bytes ? wanted[a].bytes > wanted[b].bytes : wanted[a].first < wanted[b].first;
  });
  std::vector<Placed> placed;
  placed.reserve(members.size());
  std::int64_t total = 0;
  for (const std::size_t number : members) {
    const Lifetime& life = wanted[number];
    const std::int64_t size = aligned(life.bytes);
    std::int64_t start = 0;
    for (const Placed& other : placed) {
      if (life.first > other.last || other.first > life.last) continue;
      if (other.begin - start >= size) break;
      start = std::max(start, other.end);
    }
    (*offsets)[number] = base + start;
    const Placed here{start, start + size, life.first, life.last};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), here), here);
    total = std::max(total, start + size);
  }
  return total;
}

}  // namespace

MemoryPlan plan_memory(const std::vector<Lifetime>& wanted) {
  std::vector<std::vector<std::size_t>> regions;
  std::unordered_map<std::int64_t, std::size_t> places;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto [found, is_new] = places.emplace(wanted[i].region, regions.size());
    if (is_new) regions.emplace_back();
    regions[found->second].push_back(i);
  }
  MemoryPlan plan;
  plan.offsets.resize(wanted.size());
  for (std::vector<std::size_t>& members : regions) {
    plan.total += place(wanted, std::move(members), plan.total, &plan.offsets);
  }
  return plan;
}

}  // namespace ngraph_mxnet
