// Locks that a forked child finds free, with what they guard whole.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "core/lock_order.h"

namespace ngraph_mxnet {

// How many forks after the library was loaded led to this process. What another thread had begun in an earlier one will
// never be finished.
std::uint64_t fork_generation();

// To be called by a thread of MXNet's engine before it takes the GIL: it is then known as no thread of Python's.
// MXNet's own fork handler ends the engine's threads, after what they are doing, before the process forks, so they must
// not wait for the fork.
void learn_thread();

// True if this thread ends before the process forks, which is so if Python does not know the thread. The answer at a
// thread's first call counts. A library without such threads returns false.
bool ends_before_forks();

// A mutex that no other thread holds while the process forks: the forking thread first waits for all holders of any of
// them, and keeps others out. Whoever holds one must not wait for the GIL.
class ForkSafeMutex {
 public:
  explicit ForkSafeMutex(Rank rank) : rank_(rank) {}

  void lock();
  void unlock();

 private:
  const Rank rank_;
  std::mutex mutex_;
};

// Condition variable that works in a forked child. The child has none of the threads that wait when the process forks,
// but the old condition's state says that they wait. So the child gets a new condition.
class ForkSafeCondition {
 public:
  ForkSafeCondition() = default;
  ~ForkSafeCondition() {
    if (generation_ != fork_generation()) static_cast<void>(condition_.release());  // its end would wait for waiters
  }

  // Both are called with the mutex held.
  template <class Predicate>
  void wait(std::unique_lock<ForkSafeMutex>& lock, Predicate done) {
    current().wait(lock, std::move(done));
  }
  void notify_all() { current().notify_all(); }

 private:
  std::condition_variable_any& current() {
    if (generation_ != fork_generation()) {
      static_cast<void>(condition_.release());
      condition_ = std::make_unique<std::condition_variable_any>();
      generation_ = fork_generation();
    }
    return *condition_;
  }

  std::uint64_t generation_ = fork_generation();
  std::unique_ptr<std::condition_variable_any> condition_ = std::make_unique<std::condition_variable_any>();
};

}  // namespace ngraph_mxnet
