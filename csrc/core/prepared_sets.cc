#include "core/prepared_sets.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "core/content_hash.h"
#include "core/team.h"

namespace ngraph_mxnet {
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
    sets = std::make_shared<PreparedSets>(std::move(weight_inputs), std::move(bytes), threads, hash);
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
      hash_(hash) {}

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
