#include "core/memory_plan.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "core/aligned_buffer.h"

namespace ngraph_mxnet {
namespace {

constexpr std::int64_t kStep = kAlignment;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

using Span = std::pair<std::int64_t, std::int64_t>;  // begin and end

// Buffers that have their place. Most live for a few levels. Those are found by level, neighbours as one, so that a plan for
// thousands takes no time for each pair of them.
class Placed {
 public:
  void add(const Lifetime& life, Span span) {
    const Held held{span, life.first, life.last};
    if (life.last - life.first < kShortLife) {
      for (std::int64_t level = life.first; level <= life.last; ++level) fill(&short_[level], span);
    } else {
      insert(&long_, held);
    }
    insert(&all_, held);
  }

  // Returns the spans of placed buffers that live when `life` does, sorted. Neighbouring spans may come as one.
  const std::vector<Span>& met_by(const Lifetime& life) {
    const bool is_short = life.last - life.first < kShortLife;
    met_.clear();
    for (const Held& held : is_short ? long_ : all_) {
      if (held.first <= life.last && life.first <= held.last) met_.push_back(held.span);
    }
    if (!is_short) return met_;
    for (std::int64_t level = life.first; level <= life.last; ++level) {
      const auto found = short_.find(level);
      if (found != short_.end()) met_.insert(met_.end(), found->second.begin(), found->second.end());
    }
    std::sort(met_.begin(), met_.end());
    return met_;
  }

 private:
  struct Held {
    Span span;
    std::int64_t first, last;

    bool operator<(const Held& other) const { return span < other.span; }
  };

  static void insert(std::vector<Held>* into, const Held& held) {
    into->insert(std::upper_bound(into->begin(), into->end(), held), held);
  }

  // Adds what lies in a gap, or at an end.
  static void fill(std::vector<Span>* taken, Span span) {
    auto at = std::lower_bound(taken->begin(), taken->end(), span);
    if (at != taken->end() && at->first == span.second) {
      span.second = at->second;
      at = taken->erase(at);
    }
    if (at != taken->begin() && std::prev(at)->second == span.first) {
      span.first = std::prev(at)->first;
      at = taken->erase(std::prev(at));
    }
    taken->insert(at, span);
  }

  std::unordered_map<std::int64_t, std::vector<Span>> short_;  // by each of their levels
  std::vector<Held> long_, all_;
  std::vector<Span> met_;
};

// The largest buffer first, each at the lowest gap among those it meets. Returns the region's size.
std::int64_t place(const std::vector<Lifetime>& wanted, std::vector<std::size_t> members, std::int64_t base,
                   std::vector<std::int64_t>* offsets) {
  std::stable_sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
    return wanted[a].bytes != wanted[b].bytes ? wanted[a].bytes > wanted[b].bytes : wanted[a].first < wanted[b].first;
  });
  Placed placed;
  std::int64_t total = 0;
  for (const std::size_t number : members) {
    const std::int64_t size = aligned(wanted[number].bytes);
    std::int64_t start = 0;
    for (const auto& [begin, end] : placed.met_by(wanted[number])) {
      if (begin - start >= size) break;
      start = std::max(start, end);
    }
    (*offsets)[number] = base + start;
    placed.add(wanted[number], {start, start + size});
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

std::int64_t peak_bytes(const std::vector<Lifetime>& lives) {
  std::map<std::int64_t, std::int64_t> changes;  // at the begin of a level
  for (const Lifetime& life : lives) {
    changes[life.first] += aligned(life.bytes);
    changes[life.last + 1] -= aligned(life.bytes);
  }
  std::int64_t alive = 0, most = 0;
  for (const auto& [level, change] : changes) most = std::max(most, alive += change);
  return most;
}

std::int64_t separate_bytes(const std::vector<Lifetime>& lives) {
  std::int64_t total = 0;
  for (const Lifetime& life : lives) total += aligned(life.bytes);
  return total;
}

}  // namespace ngraph_mxnet
