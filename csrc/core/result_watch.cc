#include "core/result_watch.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <pthread.h>

#include "core/clock.h"

namespace ngraph_mxnet {
namespace {

struct Watched {
  ResultWatch* watch;
  std::size_t result;
  const std::uint64_t* writes;
};

// Never destroyed: threads may outlive static objects. A forked child, which has none of the threads that run graphs or
// wait, begins with a new one.
struct Table {
  std::mutex mutex;
  std::condition_variable changed;
  std::unordered_multimap<const char*, Watched> watched;
};

Table* table = new Table;
std::atomic<bool> any{false};

void after_fork_in_child() {
  table = new Table;
  any.store(false, std::memory_order_relaxed);
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

ResultWatch::ResultWatch(const std::vector<Result>& results) {
  const std::lock_guard<std::mutex> lock(table->mutex);
  std::unordered_map<const char*, std::size_t> first;
  for (std::size_t i = 0; i < results.size(); ++i) first.emplace(results[i].data, i);
  for (const auto& [address, result] : first) table->watched.insert({address, {this, result, results[result].writes}});
  any.store(!table->watched.empty(), std::memory_order_relaxed);
}

ResultWatch::~ResultWatch() {
  const std::lock_guard<std::mutex> lock(table->mutex);
  for (auto at = table->watched.begin(); at != table->watched.end();) {
    at = at->second.watch == this ? table->watched.erase(at) : std::next(at);
  }
  any.store(!table->watched.empty(), std::memory_order_relaxed);
}

std::vector<ResultWatch::Event> ResultWatch::take(double seconds) {
  std::unique_lock<std::mutex> lock(table->mutex);
  table->changed.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return woken_ || !events_.empty(); });
  woken_ = false;
  return std::exchange(events_, {});
}

void ResultWatch::wake() {
  const std::lock_guard<std::mutex> lock(table->mutex);
  woken_ = true;
  table->changed.notify_all();
}

void announce_result(const char* data) {
  if (!any.load(std::memory_order_relaxed)) return;
  const std::lock_guard<std::mutex> lock(table->mutex);
  const auto [begin, end] = table->watched.equal_range(data);
  for (auto at = begin; at != end; ++at) {
    const Watched& found = at->second;
    found.watch->events_.push_back({found.result, now(), found.writes == nullptr ? 0 : *found.writes});
  }
  if (begin != end) table->changed.notify_all();
}

}  // namespace ngraph_mxnet
