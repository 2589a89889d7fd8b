#include "prepared_sets.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <stdexcept>

#include "content_hash.h"
#include "team.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kMaxSets = 8;  // for each Executable
constexpr std::size_t kMaxSightings = 4;  // e.g. several executors that hold copies of the same weights

// Tensors without a version are never the same: nobody knows who wrote to them.
bool same_identity(const InputTensor& a, const InputTensor& b) {
  return a.data == b.data && a.version.has_value() && a.version == b.version;
}

std::string key_of(const std::string& program, const std::vector<std::size_t>& cacheable,
                   const std::vector<std::size_t>& bytes) {
  std::string key = program;
  for (const auto* numbers : {&cacheable, &bytes}) {
    key.append(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(std::size_t));
  }
  return key;
}

}  // namespace

std::shared_ptr<PreparedSets> PreparedSets::shared(const std::string& program, std::vector<std::size_t> cacheable,
                                                   std::vector<std::size_t> bytes, int threads) {
  // Never destroyed: MXNet's threads may still run while the process exits.
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<std::string, std::weak_ptr<PreparedSets>>;
  std::string key = key_of(program, cacheable, bytes);
  const std::lock_guard<std::mutex> lock(*mutex);
  for (auto entry = known->begin(); entry != known->end();) {
    entry = entry->second.expired() ? known->erase(entry) : std::next(entry);
  }
  std::weak_ptr<PreparedSets>& place = (*known)[std::move(key)];
  std::shared_ptr<PreparedSets> sets = place.lock();
  if (sets == nullptr) {
    sets = std::make_shared<PreparedSets>(std::move(cacheable), std::move(bytes), threads);
    place = sets;
  }
  return sets;
}

PreparedSets::PreparedSets(std::vector<std::size_t> cacheable, std::vector<std::size_t> bytes,
                           int threads)
    : cacheable_(std::move(cacheable)), bytes_(std::move(bytes)), threads_(threads) {}

PreparedSets::Buffer PreparedSets::get(const std::vector<InputTensor>& inputs, const Prepare& prepare) {
  Sighting seen = sight(inputs);
  std::unique_lock<std::mutex> lock(mutex_);
  if (SetPtr set = find_by_identity(seen)) return wait_for(set, &lock);

  const std::vector<std::optional<std::uint64_t>> known = known_hashes(seen);
  lock.unlock();
  std::vector<std::uint64_t> hashes = all_hashes(seen, known);
  lock.lock();

  SetPtr set = find_by_content(hashes);
  if (set != nullptr) {
    remember(set, std::move(seen));
    return wait_for(set, &lock);
  }
  set = std::make_shared<Set>();
  set->hashes = std::move(hashes);
  sets_.push_front(set);
  remember(set, std::move(seen));
  while (sets_.size() > most_sets()) sets_.pop_back();
  lock.unlock();

  Buffer buffer;
  try {
    buffer = prepare(set->hashes);
  } catch (...) {
    lock.lock();
    sets_.remove(set);
    set->pending = false;
    finished_.notify_all();
    throw;
  }
  lock.lock();
  set->buffer = buffer;
  set->pending = false;
  finished_.notify_all();
  return buffer;
}

// Every owner is an Executable.
std::size_t PreparedSets::most_sets() const {
  return kMaxSets * static_cast<std::size_t>(std::max(weak_from_this().use_count(), 1L));
}

PreparedSets::Sighting PreparedSets::sight(const std::vector<InputTensor>& inputs) const {
  Sighting seen;
  seen.tensors.reserve(cacheable_.size());
  seen.samples.reserve(cacheable_.size());
  for (std::size_t i = 0; i < cacheable_.size(); ++i) {
    const InputTensor& tensor = inputs[cacheable_[i]];
    seen.tensors.push_back(tensor);
    seen.samples.push_back(tensor.version ? sample_hash(tensor.data, bytes_[i]) : 0);
  }
  return seen;
}

PreparedSets::SetPtr PreparedSets::find_by_identity(const Sighting& seen) {
  for (auto set = sets_.begin(); set != sets_.end(); ++set) {
    for (const Sighting& old : (*set)->sightings) {
      if (std::equal(seen.tensors.begin(), seen.tensors.end(), old.tensors.begin(), same_identity) &&
          seen.samples == old.samples) {
        sets_.splice(sets_.begin(), sets_, set);
        return *set;
      }
    }
  }
  return nullptr;
}

PreparedSets::SetPtr PreparedSets::find_by_content(const std::vector<std::uint64_t>& hashes) {
  for (auto set = sets_.begin(); set != sets_.end(); ++set) {
    if ((*set)->hashes == hashes) {
      sets_.splice(sets_.begin(), sets_, set);
      return *set;
    }
  }
  return nullptr;
}

// MXNet bumps the version of auxiliary states at every call of a static Gluon graph, so mostly a few
// small tensors have changed and the others need not be read again.
std::vector<std::optional<std::uint64_t>> PreparedSets::known_hashes(const Sighting& seen) const {
  std::vector<std::optional<std::uint64_t>> known(seen.tensors.size());
  for (const SetPtr& set : sets_) {
    for (const Sighting& old : set->sightings) {
      for (std::size_t i = 0; i < known.size(); ++i) {
        if (!known[i] && same_identity(seen.tensors[i], old.tensors[i]) &&
            seen.samples[i] == old.samples[i]) {
          known[i] = set->hashes[i];
        }
      }
    }
  }
  return known;
}

std::vector<std::uint64_t> PreparedSets::all_hashes(
    const Sighting& seen, const std::vector<std::optional<std::uint64_t>>& known) const {
  std::vector<std::uint64_t> hashes(known.size());
  std::atomic<std::size_t> next{0};
  run_on_team(threads_, [&](int, int) {
    for (std::size_t i; (i = next.fetch_add(1)) < hashes.size();) {
      hashes[i] = known[i] ? *known[i] : content_hash(seen.tensors[i].data, bytes_[i]);
    }
  });
  return hashes;
}

// Weights are mostly overwritten in place; what was prepared from the old content is then of no
// more use, and it is as big as the model.
void PreparedSets::forget_overwritten(const Sighting& seen, const SetPtr& keep) {
  const auto same_place = [](const InputTensor& a, const InputTensor& b) { return a.data == b.data; };
  for (auto set = sets_.begin(); set != sets_.end();) {
    std::list<Sighting>& sightings = (*set)->sightings;
    const std::size_t before = sightings.size();
    sightings.remove_if([&](const Sighting& old) {
      return std::equal(seen.tensors.begin(), seen.tensors.end(), old.tensors.begin(), same_place);
    });
    const bool useless = before > 0 && sightings.empty() && *set != keep;
    set = useless ? sets_.erase(set) : std::next(set);
  }
}

void PreparedSets::remember(const SetPtr& set, Sighting seen) {
  const bool versioned = std::all_of(seen.tensors.begin(), seen.tensors.end(),
                                     [](const InputTensor& t) { return t.version.has_value(); });
  if (!versioned) return;
  forget_overwritten(seen, set);
  set->sightings.push_front(std::move(seen));
  if (set->sightings.size() > kMaxSightings) set->sightings.pop_back();
}

PreparedSets::Buffer PreparedSets::wait_for(const SetPtr& set, std::unique_lock<std::mutex>* lock) {
  finished_.wait(*lock, [&] { return !set->pending; });
  if (set->buffer == nullptr) throw std::runtime_error("preparing the weights failed in another thread");
  return set->buffer;
}

}  // namespace ngraph_mxnet
