#include "mxnet/compile_cache.h"

#include <algorithm>
#include <stdexcept>

#include "core/content_hash.h"
#include "core/python_runtime.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kMaxEntries = 256;
constexpr std::size_t kMaxRanges = 256;

// A state is created at every call of a dynamic Gluon graph, so a lookup must be cheap: the hash covers
// what nearly always tells keys apart, and equality decides.
std::uint64_t hash_of(const CompileKey& key) {
  std::uint64_t hash = content_hash128(key.identity().data(), key.identity().size()).low;
  for (const auto& shape : key.shapes) {
    hash = hash * 31 + content_hash128(shape.data(), shape.size() * sizeof(shape[0])).low;
  }
  return hash * 31 + content_hash128(key.types.data(), key.types.size() * sizeof(int)).low;
}

std::uint64_t graph_number(const CompileKey& key) {
  const std::string& graph = key.identity();
  return content_hash128(graph.data(), graph.size()).low | 1;
}

}  // namespace

const std::string& CompileKey::identity() const {
  const auto structure = attrs.find("ngraph_structure");
  return structure == attrs.end() ? graph_json : structure->second;
}

bool CompileKey::operator==(const CompileKey& other) const {
  return shapes == other.shapes && types == other.types && attrs == other.attrs &&
         identity() == other.identity();
}

CompileCache& CompileCache::instance() {
  // Never destroyed: MXNet's threads may still run while the process exits.
  static CompileCache* const cache = new CompileCache;
  return *cache;
}

CompileCache::Result CompileCache::get(CompileKey key,
                                       const std::function<Compiled(const CompileKey&)>& compile) {
  const std::uint64_t hash = hash_of(key);
  std::unique_lock<ForkSafeMutex> lock(mutex_);
  while (EntryPtr entry = find(key, hash)) {
    finished_.wait(lock, [&] { return !entry->pending; });
    if (entry->interrupted) continue;
    ++hits_;
    if (entry->result == nullptr) throw std::runtime_error(entry->error);
    return entry->result;
  }
  ++misses_;
  const EntryPtr entry = std::make_shared<Entry>();
  entry->key = std::move(key);
  entry->hash = hash;
  entry->used = CompiledGraph::all_calls();
  entries_.push_front(entry);
  lock.unlock();

  Result result;
  std::string error;
  try {
    result = bound(entry->key);
    if (result == nullptr) {
      Compiled compiled = compile(entry->key);
      result = std::move(compiled.graph);
      if (compiled.range != nullptr) {
        compiled.range->set_graph(graph_number(entry->key));
        add(entry->key, std::move(compiled.range));
      }
    }
    if (result != nullptr) result->set_graph(graph_number(entry->key));
  } catch (const Interrupted& interruption) {
    entry->interrupted = true;
    error = interruption.what();
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  lock.lock();
  entry->result = result;
  entry->error = error;
  entry->pending = false;
  if (result == nullptr) entries_.remove(entry);
  const std::list<EntryPtr> evicted = evict(entry->key);  // destroyed after the lock is gone: it may need the GIL
  finished_.notify_all();
  lock.unlock();
  if (result == nullptr) throw std::runtime_error(error);
  return result;
}

CompileCache::Result CompileCache::bound(const CompileKey& key) {
  std::vector<std::shared_ptr<const Binder>> fitting;
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    for (const Range& each : ranges_) {
      if (each.identity == key.identity() && each.types == key.types && each.attrs == key.attrs) {
        fitting.push_back(each.range);
      }
    }
  }
  for (const auto& each : fitting) {
    Result found;
    try {
      found = each->bind(key.shapes);
    } catch (const std::invalid_argument&) {
      continue;  // such as of tables beyond all bounds: whoever compiles says it better
    }
    if (found != nullptr) {
      const std::lock_guard<ForkSafeMutex> lock(mutex_);
      ++bound_;
      const auto own =
          std::find_if(ranges_.begin(), ranges_.end(), [&](const Range& range) { return range.range == each; });
      if (own != ranges_.end()) ranges_.splice(ranges_.begin(), ranges_, own);
      return found;
    }
  }
  return nullptr;
}

void CompileCache::add(const CompileKey& key, std::shared_ptr<const Binder> range) {
  std::list<Range> dropped;  // destroyed after the lock is gone: it may need the GIL
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  ranges_.push_front({key.identity(), key.types, key.attrs, std::move(range)});
  while (ranges_.size() > kMaxRanges) dropped.splice(dropped.end(), ranges_, std::prev(ranges_.end()));
}

CompileCache::EntryPtr CompileCache::find(const CompileKey& key, std::uint64_t hash) {
  entries_.remove_if([](const EntryPtr& entry) { return entry->pending && entry->generation != fork_generation(); });
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if ((*entry)->hash == hash && (*entry)->key == key) {
      entries_.splice(entries_.begin(), entries_, entry);
      (*entry)->used = CompiledGraph::all_calls();
      return *entry;
    }
  }
  return nullptr;
}

// Drops the oldest of the graph's entries that are too many, and the oldest of all. What is being compiled stays.
std::list<CompileCache::EntryPtr> CompileCache::evict(const CompileKey& key) {
  for (const EntryPtr& entry : entries_) {
    if (entry->result != nullptr) entry->used = std::max(entry->used, entry->result->last_call());
  }
  entries_.sort([](const EntryPtr& a, const EntryPtr& b) { return a->used > b->used; });
  std::list<EntryPtr> evicted;
  std::size_t same = 0, all = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const CompileKey& other = (*entry)->key;
    same += other.attrs == key.attrs && other.identity() == key.identity();
    const bool too_many = ++all > kMaxEntries || (same > shapes_ && other.attrs == key.attrs &&
                                                  other.identity() == key.identity());
    const auto next = std::next(entry);
    if (too_many && !(*entry)->pending) evicted.splice(evicted.end(), entries_, entry);
    entry = next;
  }
  return evicted;
}

std::size_t CompileCache::shapes() {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  return shapes_;
}

void CompileCache::limit(std::size_t shapes) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  shapes_ = shapes;
}

CompileCache::Info CompileCache::info() {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  return {entries_.size(), hits_, misses_, bound_};
}

std::vector<std::pair<CompileKey, CompileCache::Result>> CompileCache::contents() {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  std::vector<std::pair<CompileKey, Result>> found;
  for (const EntryPtr& entry : entries_) {
    if (!entry->pending) found.emplace_back(entry->key, entry->result);
  }
  return found;
}

void CompileCache::clear() {
  std::list<EntryPtr> dropped;
  std::list<Range> ranges;
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    dropped.swap(entries_);
    ranges.swap(ranges_);
    hits_ = misses_ = bound_ = 0;
  }
}

}  // namespace ngraph_mxnet
