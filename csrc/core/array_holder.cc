#include "core/array_holder.h"

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include <pthread.h>

#include "core/fork_safety.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kMostSightings = 64;  // of one user: as many alike regions may stand in one graph
constexpr std::size_t kLatestRanges = 256;

struct Range {
  std::uintptr_t begin, end;

  Range(const void* data, std::size_t bytes)
      : begin(reinterpret_cast<std::uintptr_t>(data)), end(begin + bytes) {}
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

// All that follows is guarded by one lock, for memory that is shared concerns every holder. Never destroyed: MXNet's
// threads may still run while the process exits.
struct Shared {
  ForkSafeMutex mutex{Rank::kArrayHolders};
  std::list<ArrayHolder*> holders;
  std::multimap<std::uintptr_t, Range> outside;  // by begin
  std::size_t longest = 0;                       // of the ranges in `outside`, at least
  std::deque<Range> latest;                      // added last, the latest last
  std::uint64_t added = 0;                       // how many ever

  bool outside_meets(const Range& range) const {
    if (outside.empty()) return false;
    const std::uintptr_t first = range.begin > longest ? range.begin - longest : 0;
    for (auto at = outside.lower_bound(first); at != outside.end() && at->first < range.end; ++at) {
      if (at->second.meets(range)) return true;
    }
    return false;
  }

  // True if a range that was added after the first `before` ranges meets `range`. Also true if `latest` no longer goes back
  // so far.
  bool added_since(std::uint64_t before, const Range& range) const {
    const std::uint64_t news = added - before;
    if (news > latest.size()) return true;
    return std::any_of(latest.end() - static_cast<std::ptrdiff_t>(news), latest.end(),
                       [&](const Range& other) { return other.meets(range); });
  }
};

Shared& shared() {
  static Shared* const instance = new Shared;
  return *instance;
}

bool same(const InputTensor& a, const InputTensor& b) {
  return a.data == b.data && a.version.has_value() && a.version == b.version;
}

bool same_place(const InputTensor& a, const InputTensor& b) { return a.data == b.data; }

thread_local std::vector<std::shared_ptr<ArrayHolder>> entered;

}  // namespace

std::atomic<std::uint64_t> DirectCopies::started{0}, DirectCopies::finished{0};

std::uint64_t DirectCopies::begin() {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, forget_after_fork);
  started.fetch_add(1);
  return fork_generation();
}

void DirectCopies::end(std::uint64_t begun) {
  if (begun == fork_generation()) finished.fetch_add(1);
}

void DirectCopies::forget_after_fork() { finished.store(started.load()); }

ArrayHolder::ArrayHolder() {
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  shared().holders.push_back(this);
}

ArrayHolder::~ArrayHolder() {
  forget();
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  shared().holders.remove(this);
}

void ArrayHolder::enter(std::shared_ptr<ArrayHolder> holder) { entered.push_back(std::move(holder)); }

void ArrayHolder::leave() { entered.pop_back(); }

std::shared_ptr<ArrayHolder> ArrayHolder::current() { return entered.empty() ? nullptr : entered.back(); }

void ArrayHolder::made(std::shared_ptr<CompiledGraph> graph) {
  ops_.fetch_add(1);
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  latest_ = graph;
}

std::shared_ptr<CompiledGraph> ArrayHolder::latest() const {
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  return latest_.lock();
}

bool ArrayHolder::trusts(const InputTensor& tensor, std::size_t bytes) const {
  return !distrusted_ && tensor.version.value_or(0) > 0 && !shared().outside_meets({tensor.data, bytes});
}

std::shared_ptr<PreparedSet> ArrayHolder::seen(std::uint64_t user, const std::vector<InputTensor>& inputs,
                                               const std::vector<std::size_t>& places,
                                               const std::vector<std::size_t>& bytes) {
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  const auto sightings = sightings_.find(user);
  if (sightings == sightings_.end()) return nullptr;
  for (auto seen = sightings->second.rbegin(); seen != sightings->second.rend(); ++seen) {
    bool all = true;
    for (std::size_t i = 0; all && i < places.size(); ++i) {
      const InputTensor& tensor = inputs[places[i]];
      all = same(tensor, seen->tensors[i]) && trusts(tensor, bytes[i]);
    }
    if (!all) continue;
    if (std::shared_ptr<PreparedSet> set = seen->set.lock()) return set;
  }
  return nullptr;
}

ArrayHolder::Look ArrayHolder::look(std::uint64_t user, const std::vector<InputTensor>& tensors,
                                    const std::vector<std::size_t>& bytes) {
  Look found;
  found.trusted.resize(tensors.size());
  found.hashes.resize(tensors.size());
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  found.moment = shared().added;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    found.trusted[i] = trusts(tensors[i], bytes[i]);
  }
  const auto sightings = sightings_.find(user);
  if (sightings == sightings_.end()) return found;
  for (auto seen = sightings->second.rbegin(); seen != sightings->second.rend(); ++seen) {
    const std::shared_ptr<PreparedSet> set = seen->set.lock();
    if (set == nullptr) continue;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!found.hashes[i] && found.trusted[i] && same(tensors[i], seen->tensors[i])) found.hashes[i] = set->hashes[i];
    }
  }
  return found;
}

std::shared_ptr<PreparedSet> ArrayHolder::record(std::uint64_t user, const std::vector<InputTensor>& tensors,
                                                 const std::vector<std::size_t>& bytes, const Look& look,
                                                 std::shared_ptr<PreparedSet> set) {
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  Sighting now{tensors, bytes, set};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // Somebody outside may have written since the tensor was read.
    if (!look.trusted[i] || shared().added_since(look.moment, {tensors[i].data, bytes[i]})) {
      now.tensors[i].version.reset();
    }
  }
  if (sightings_.find(user) == sightings_.end()) drop_dead_users();
  std::vector<Sighting>& sightings = sightings_[user];
  std::shared_ptr<PreparedSet> before;
  const auto old = std::find_if(sightings.begin(), sightings.end(), [&](const Sighting& seen) {
    return std::equal(tensors.begin(), tensors.end(), seen.tensors.begin(), same_place);
  });
  ++set->sightings;
  if (old != sightings.end()) {
    before = old->set.lock();
    sightings.erase(old);
  } else if (sightings.size() >= kMostSightings) {
    if (const auto oldest = sightings.front().set.lock()) --oldest->sightings;
    sightings.erase(sightings.begin());
  }
  sightings.push_back(std::move(now));
  return before != nullptr && --before->sightings == 0 ? before : nullptr;
}

void ArrayHolder::forget() {
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  for (auto& [user, sightings] : sightings_) {
    for (const Sighting& seen : sightings) {
      if (const auto set = seen.set.lock()) --set->sightings;
    }
  }
  sightings_.clear();
}

// Drops the users whose prepared sets are all gone: graphs that were compiled for shapes that are gone.
void ArrayHolder::drop_dead_users() {
  const auto dead = [](const Sighting& seen) { return seen.set.expired(); };
  for (auto user = sightings_.begin(); user != sightings_.end();) {
    const std::vector<Sighting>& sightings = user->second;
    user = std::all_of(sightings.begin(), sightings.end(), dead) ? sightings_.erase(user) : std::next(user);
  }
}

void OutsideWriters::add(const void* data, std::size_t bytes) {
  const Range range(data, bytes);
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  shared().outside.emplace(range.begin, range);
  shared().longest = std::max(shared().longest, bytes);
  shared().latest.push_back(range);
  ++shared().added;
  if (shared().latest.size() > kLatestRanges) shared().latest.pop_front();
  // Earlier sightings in this range do not count any more, also when the range is removed again.
  for (ArrayHolder* holder : shared().holders) {
    for (auto& [user, sightings] : holder->sightings_) {
      for (ArrayHolder::Sighting& seen : sightings) {
        for (std::size_t i = 0; i < seen.tensors.size(); ++i) {
          if (range.meets({seen.tensors[i].data, seen.bytes[i]})) seen.tensors[i].version.reset();
        }
      }
    }
  }
}

void OutsideWriters::remove(const void* data, std::size_t bytes) {
  const Range range(data, bytes);
  const std::lock_guard<ForkSafeMutex> lock(shared().mutex);
  auto [at, end] = shared().outside.equal_range(range.begin);
  at = std::find_if(at, end, [&](const auto& entry) { return entry.second.end == range.end; });
  if (at != end) shared().outside.erase(at);
  if (shared().outside.empty()) shared().longest = 0;
}

}  // namespace ngraph_mxnet
