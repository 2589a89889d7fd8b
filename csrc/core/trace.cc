#include "core/trace.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/fork_safety.h"
#include "core/lock_order.h"

namespace ngraph_mxnet::trace {

std::atomic<bool> detail::on{false};

namespace {

// The last events of one thread. Its mutex is free but for the moment in which someone takes them.
class Ring {
 public:
  explicit Ring(std::size_t capacity) : events_(capacity) {}

  void record(const Event& event) {
    const std::lock_guard<RankedMutex> lock(mutex_);
    Event& last = events_[(count_ + events_.size() - 1) % events_.size()];
    if (count_ > 0 && last.call == event.call && last.label == event.label && last.thread == event.thread) {
      last.end = event.end;
      last.tasks += event.tasks;
    } else {
      events_[count_++ % events_.size()] = event;
    }
  }

  void move_to(Contents* contents) {
    const std::lock_guard<RankedMutex> lock(mutex_);
    const std::uint64_t kept = std::min<std::uint64_t>(count_, events_.size());
    for (std::uint64_t i = count_ - kept; i < count_; ++i) contents->events.push_back(events_[i % events_.size()]);
    contents->dropped += count_ - kept;
    count_ = 0;
  }

 private:
  RankedMutex mutex_{Rank::kInnermost};
  std::vector<Event> events_;
  std::uint64_t count_ = 0;  // recorded since they were last taken
};

using Rings = std::vector<std::shared_ptr<Ring>>;

ForkSafeMutex mutex{Rank::kTraces};  // guards the three below
std::size_t capacity = 1;
Rings* rings = new Rings;  // never deleted: threads may outlive static objects
std::vector<Label>* labels = new std::vector<Label>;

// Rings of an earlier epoch are written to no more.
std::atomic<std::uint64_t> epoch{0};
std::atomic<std::uint64_t> calls{0};

// The parent's rings stay behind: a thread that has no copy here may hold the mutex of one.
void after_fork_in_child() {
  rings = new Rings;
  ++epoch;
}

struct Writer {
  std::shared_ptr<Ring> ring;
  std::uint64_t epoch;
  std::int32_t thread;
};

// The calling thread's ring: that of a thread that has ended, else a new one.
Writer make_writer() {
  const std::lock_guard<ForkSafeMutex> lock(mutex);
  const auto unused =
      std::find_if(rings->begin(), rings->end(), [](const auto& ring) { return ring.use_count() == 1; });
  std::shared_ptr<Ring> ring = unused == rings->end() ? nullptr : *unused;
  if (ring == nullptr) ring = rings->emplace_back(std::make_shared<Ring>(capacity));
  return {std::move(ring), epoch, static_cast<std::int32_t>(syscall(SYS_gettid))};
}

}  // namespace

void start(std::size_t events_per_thread) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, after_fork_in_child); });
  const std::lock_guard<ForkSafeMutex> lock(mutex);
  capacity = std::max<std::size_t>(events_per_thread, 1);
  rings->clear();
  ++epoch;
  detail::on.store(true);
}

void stop() { detail::on.store(false); }

Contents take() {
  const std::lock_guard<ForkSafeMutex> lock(mutex);
  Contents contents{*labels, {}, 0};
  for (const auto& ring : *rings) ring->move_to(&contents);
  return contents;
}

std::uint32_t add_labels(const std::vector<Label>& added) {
  const std::lock_guard<ForkSafeMutex> lock(mutex);
  const auto first = static_cast<std::uint32_t>(labels->size());
  labels->insert(labels->end(), added.begin(), added.end());
  return first;
}

std::uint64_t next_call() { return calls.fetch_add(1, std::memory_order_relaxed); }

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void record(Event event) {
  thread_local Writer writer = make_writer();
  if (writer.epoch != epoch.load(std::memory_order_relaxed)) writer = make_writer();
  event.thread = writer.thread;
  writer.ring->record(event);
}

}  // namespace ngraph_mxnet::trace
