#include "team.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <immintrin.h>
#include <linux/futex.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ngraph_mxnet {
namespace {

constexpr int kSpins = 2000;  // some tens of microseconds
constexpr int kYields = 200;

void futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, nullptr, nullptr, 0);
}

// Threads of all teams now running.
std::atomic<int> busy_threads{0};

// Spinning teams that outnumber the cores slow each other down many times over, so calls that
// overlap share the cores; a call alone gets what it asked for.
class Lease {
 public:
  explicit Lease(int wanted) {
    const int budget = std::max(wanted, omp_get_num_procs());
    int busy = busy_threads.load(std::memory_order_relaxed);
    do {
      size_ = std::clamp(budget - busy, 1, wanted);
    } while (!busy_threads.compare_exchange_weak(busy, busy + size_, std::memory_order_relaxed));
  }
  ~Lease() { busy_threads.fetch_sub(size_, std::memory_order_relaxed); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  int size() const { return size_; }

 private:
  int size_;
};

void parallel_region(int wanted, const TeamBody& body) {
#pragma omp parallel num_threads(wanted)
  body(omp_get_thread_num(), omp_get_num_threads());
}

// A thread that lends its own, fresh libgomp pool to a thread whose pool died in a fork.
class ForkHelper {
 public:
  ForkHelper() { std::thread(&ForkHelper::loop, this).detach(); }

  void run(const std::function<void()>& job) {
    std::unique_lock<std::mutex> lock(mutex_);
    job_ = &job;
    changed_.notify_all();
    changed_.wait(lock, [this] { return job_ == nullptr; });
  }

 private:
  void loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return job_ != nullptr; });
      (*job_)();
      job_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* job_ = nullptr;
};

// The thread that called fork survives in the child, but the pool libgomp keeps for it does not:
// its next parallel region would wait for ever.
thread_local bool pool_lost_in_fork = false;
thread_local ForkHelper* fork_helper = nullptr;  // never deleted: its thread never ends

void after_fork_in_child() {
  pool_lost_in_fork = true;
  fork_helper = nullptr;  // a helper of the parent has no thread here
  busy_threads.store(0, std::memory_order_relaxed);
}

// When the library is loaded: MXNet's operators, or another library, may have made the forking thread's pool.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

void Barrier::wait(int team) {
  if (team == 1) return;
  const std::uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == team) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) futex(&generation_, FUTEX_WAKE_PRIVATE, INT32_MAX);
    return;
  }
  const auto passed = [&] { return generation_.load(std::memory_order_acquire) != generation; };
  for (int i = 0; i < kSpins; ++i) {
    if (passed()) return;
    _mm_pause();
  }
  for (int i = 0; i < kYields; ++i) {
    if (passed()) return;
    sched_yield();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (!passed()) futex(&generation_, FUTEX_WAIT_PRIVATE, generation);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void run_on_team(int wanted, const TeamBody& body) {
  const Lease lease(wanted);
  if (lease.size() == 1) {
    body(0, 1);
  } else if (pool_lost_in_fork) {
    if (fork_helper == nullptr) fork_helper = new ForkHelper;
    fork_helper->run([&] { parallel_region(lease.size(), body); });
  } else {
    parallel_region(lease.size(), body);
  }
}

}  // namespace ngraph_mxnet
