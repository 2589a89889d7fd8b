#include "core/fork_safety.h"

#include <atomic>
#include <shared_mutex>

#include <pthread.h>

namespace ngraph_mxnet {
namespace {

// Shared by all who hold a ForkSafeMutex; a forking thread has it alone. Never destroyed: threads may outlive static
// objects.
std::shared_mutex* gate = new std::shared_mutex;
std::atomic<std::uint64_t> generation{0};
thread_local const bool ending = ends_before_forks();

void before_fork() { gate->lock(); }
void after_fork_in_parent() { gate->unlock(); }
void after_fork_in_child() {
  gate = new std::shared_mutex;
  generation.fetch_add(1, std::memory_order_relaxed);
}

[[maybe_unused]] const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

}  // namespace

std::uint64_t fork_generation() { return generation.load(std::memory_order_relaxed); }

void learn_thread() { static_cast<void>(ending); }

void ForkSafeMutex::lock() {
  about_to_lock(rank_);
  if (!ending) gate->lock_shared();
  mutex_.lock();
}

void ForkSafeMutex::unlock() {
  mutex_.unlock();
  if (!ending) gate->unlock_shared();
  unlocked(rank_);
}

}  // namespace ngraph_mxnet
