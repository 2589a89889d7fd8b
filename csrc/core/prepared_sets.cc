#include "core/prepared_sets.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include <pthread.h>

#include "core/team.h"

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

  // True if a range that was added after the first `before` ranges meets `range`. Also true if `latest` no longer goes
  // back so far.
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

namespace {

constexpr std::size_t kMaxSets = 8;  // for each Executable

std::atomic<std::uint64_t> made{0};

std::string key_of(const std::string& program, const std::vector<std::size_t>& weight_inputs,
                   const std::vector<std::size_t>& bytes) {
  std::string key = program;
  for (const auto* numbers : {&weight_inputs, &bytes}) {
    key.append(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(std::size_t));
  }
  return key;
}

}  // namespace

std::shared_ptr<PreparedSets> PreparedSets::shared(const std::string& program, std::vector<std::size_t> weight_inputs,
                                                   std::vector<std::size_t> bytes, int threads, ContentHash hash) {
  // Never destroyed: MXNet's threads may still run while the process exits.
  static auto* const mutex = new ForkSafeMutex(Rank::kKnownSets);
  static auto* const known = new std::map<std::string, std::weak_ptr<PreparedSets>>;
  std::string key = key_of(program, weight_inputs, bytes);
  const std::lock_guard<ForkSafeMutex> lock(*mutex);
  for (auto entry = known->begin(); entry != known->end();) {
    entry = entry->second.expired() ? known->erase(entry) : std::next(entry);
  }
  std::weak_ptr<PreparedSets>& place = (*known)[std::move(key)];
  std::shared_ptr<PreparedSets> sets = place.lock();
  if (sets == nullptr) {
    sets = std::make_shared<PreparedSets>(std::move(weight_inputs), std::move(bytes), threads, std::move(hash));
    place = sets;
  }
  return sets;
}

PreparedSets::PreparedSets(std::vector<std::size_t> weight_inputs, std::vector<std::size_t> bytes, int threads,
                           ContentHash hash)
    : id_(made.fetch_add(1)),
      weight_inputs_(std::move(weight_inputs)),
      bytes_(std::move(bytes)),
      threads_(threads),
      hash_(std::move(hash)) {}

PreparedSets::Buffer PreparedSets::get(const std::vector<InputTensor>& inputs, ArrayHolder* holder,
                                       const Prepare& prepare) {
  if (holder != nullptr) {
    if (const SetPtr seen = holder->seen(id_, inputs, weight_inputs_, bytes_)) {
      if (Buffer buffer = finished(seen)) return buffer;
    }
  }
  std::vector<InputTensor> weights;
  weights.reserve(weight_inputs_.size());
  for (std::size_t index : weight_inputs_) weights.push_back(inputs[index]);

  ArrayHolder::Look look;
  if (holder != nullptr) {
    look = holder->look(id_, weights, bytes_);
  } else {
    look.trusted.resize(weights.size());
    look.hashes.resize(weights.size());
  }

  // A set is prepared from what was hashed. Preparing reads the weights once more, so what somebody may write to
  // meanwhile is copied first.
  const DirectCopies copies;
  const Hashes hashes = all_hashes(weights, look.hashes);
  SetPtr set;
  {
    std::unique_lock<ForkSafeMutex> lock(mutex_);
    set = find(hashes, &lock);
  }
  const bool steady = std::find(look.trusted.begin(), look.trusted.end(), false) == look.trusted.end();
  if (set == nullptr && steady && copies.none()) set = find_or_prepare(hashes, inputs, prepare, &copies);
  if (set == nullptr) {
    std::vector<bool> moving(weights.size(), true);
    std::vector<std::optional<Hash128>> known(weights.size());
    if (copies.none()) {
      moving = look.trusted;
      moving.flip();
      for (std::size_t i = 0; i < known.size(); ++i) {
        if (!moving[i]) known[i] = hashes[i];
      }
    }
    std::vector<InputTensor> still = weights;
    const std::vector<AlignedBuffer> copied = copy(moving, &still);
    std::vector<InputTensor> fixed = inputs;
    for (std::size_t i = 0; i < weight_inputs_.size(); ++i) fixed[weight_inputs_[i]] = still[i];
    set = find_or_prepare(all_hashes(still, known), fixed, prepare, nullptr);
  }
  if (holder != nullptr) {
    if (const SetPtr useless = holder->record(id_, weights, bytes_, look, set)) drop(useless);
  }
  return set->buffer;
}

// The set's buffer, as soon as it is prepared; null if that failed.
PreparedSets::Buffer PreparedSets::finished(const SetPtr& set) {
  std::unique_lock<ForkSafeMutex> lock(mutex_);
  finished_.wait(lock, [&] { return !set->pending; });
  const auto at = std::find(sets_.begin(), sets_.end(), set);
  if (at != sets_.end()) sets_.splice(sets_.begin(), sets_, at);
  return set->buffer;
}

// Every owner is an Executable.
std::size_t PreparedSets::most_sets() const {
  return kMaxSets * static_cast<std::size_t>(std::max(weak_from_this().use_count(), 1L));
}

PreparedSets::Hashes PreparedSets::all_hashes(const std::vector<InputTensor>& weights,
                                              const std::vector<std::optional<Hash128>>& known) const {
  Hashes hashes(known.size());
  run_on_team(threads_, hashes.size(), [&](int i) {
    hashes[i] = known[i] ? *known[i] : hash_(weights[i].data, bytes_[i]);
  });
  return hashes;
}

// Points the chosen weights at copies of their own.
std::vector<AlignedBuffer> PreparedSets::copy(const std::vector<bool>& which,
                                              std::vector<InputTensor>* weights) const {
  std::vector<AlignedBuffer> copies(weights->size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (!which[i]) continue;
    copies[i] = AlignedBuffer(bytes_[i]);
    std::memcpy(copies[i].data(), (*weights)[i].data, bytes_[i]);
    (*weights)[i].data = copies[i].data();
  }
  return copies;
}

// The finished set of these weights, or null.
PreparedSets::SetPtr PreparedSets::find(const Hashes& hashes, std::unique_lock<ForkSafeMutex>* lock) {
  sets_.remove_if([](const SetPtr& set) { return set->pending && set->generation != fork_generation(); });
  for (;;) {
    const auto at = std::find_if(sets_.begin(), sets_.end(), [&](const SetPtr& set) { return set->hashes == hashes; });
    if (at == sets_.end()) return nullptr;
    const SetPtr set = *at;
    sets_.splice(sets_.begin(), sets_, at);
    finished_.wait(*lock, [&] { return !set->pending; });
    if (set->buffer != nullptr) return set;  // one that failed is in the list no more
  }
}

// Null if, by `copies`, the weights may have changed after they were hashed.
PreparedSets::SetPtr PreparedSets::find_or_prepare(Hashes hashes, const std::vector<InputTensor>& inputs,
                                                   const Prepare& prepare, const DirectCopies* copies) {
  std::unique_lock<ForkSafeMutex> lock(mutex_);
  if (SetPtr set = find(hashes, &lock)) return set;
  const SetPtr set = std::make_shared<PreparedSet>();
  set->hashes = std::move(hashes);
  sets_.push_front(set);
  while (sets_.size() > most_sets()) sets_.pop_back();
  lock.unlock();

  Buffer buffer;
  const auto finish = [&](Buffer made) {
    lock.lock();
    set->buffer = std::move(made);
    set->pending = false;
    if (set->buffer == nullptr) sets_.remove(set);
    finished_.notify_all();
  };
  try {
    buffer = prepare(inputs, set->hashes);
  } catch (...) {
    finish(nullptr);
    throw;
  }
  const bool same = copies == nullptr || copies->none();
  finish(same ? std::move(buffer) : nullptr);
  return same ? set : nullptr;
}

// Weights are mostly overwritten in place; what was prepared from the old content is then of no more use, and it is as
// big as the model.
void PreparedSets::drop(const SetPtr& set) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  sets_.remove(set);
}

}  // namespace ngraph_mxnet
