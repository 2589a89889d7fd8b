#include "team.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "places.h"

namespace ngraph_mxnet {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr Patience kInCall{microseconds(50), microseconds(200)};

void futex(const std::atomic<std::uint32_t>* word, int operation, std::uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(word), operation, value, nullptr, nullptr, 0);
}

// Of threads that wait for the next call: libgomp's own sleep at once where the process has more threads of it than the
// machine has cores, which is so as soon as MXNet's engine has started.
const Patience& between_calls() {
  static const Patience patience = [] {
    const char* const set = std::getenv("OMP_WAIT_POLICY");
    const std::string_view policy = set == nullptr ? "" : set;
    if (policy == "passive" || policy == "PASSIVE") return Patience{microseconds(0), microseconds(0)};
    if (policy == "active" || policy == "ACTIVE") return Patience{std::chrono::minutes(5), microseconds(0)};
    return Patience{microseconds(50), microseconds(500)};
  }();
  return patience;
}

// Threads of all teams now running.
std::atomic<int> busy_threads{0};

// Spinning teams that outnumber the cores slow each other down many times over, so calls that
// overlap share the cores; a call alone gets what it asked for.
class Lease {
 public:
  explicit Lease(int wanted) {
    const int budget = std::max(wanted, usable_cores());
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

struct Job {
  const TeamBody& body;
  int thread, team;
};

// A thread that works for one team at a time. It never ends.
class Worker {
 public:
  // Throws std::system_error.
  Worker() { std::thread(&Worker::loop, this).detach(); }

  void start(const Job& job) {
    job_ = &job;
    state_.set(kWorking);
  }
  void finish() { state_.wait_while(kWorking, kInCall); }

 private:
  static constexpr std::uint32_t kIdle = 0, kWorking = 1;

  void loop() {
    int place = 0;
    for (;;) {
      state_.wait_while(kIdle, between_calls());
      bind_to_place(job_->thread, job_->team, &place);
      job_->body(job_->thread, job_->team);
      state_.set(kIdle);
    }
  }

  const Job* job_ = nullptr;
  alignas(kAlignment) Signal state_;
};

class Workers {
 public:
  // At most so many; the system may give no more threads.
  std::vector<Worker*> take(std::size_t count) {
    std::vector<Worker*> taken;
    taken.reserve(count);
    const std::lock_guard<std::mutex> lock(mutex_);
    while (taken.size() < count) {
      if (!idle_.empty()) {
        taken.push_back(idle_.back());
        idle_.pop_back();
      } else if (Worker* const made = make()) {
        taken.push_back(made);
      } else {
        break;
      }
    }
    return taken;
  }

  // The next team gets them in the same order: each finds in its caches what it left there.
  void give_back(const std::vector<Worker*>& workers) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.insert(idle_.end(), workers.rbegin(), workers.rend());
  }

 private:
  static Worker* make() {
    try {
      return new Worker;
    } catch (const std::system_error&) {
      return nullptr;
    }
  }

  std::mutex mutex_;
  std::vector<Worker*> idle_;
};

// Never destroyed: threads may outlive static objects.
Workers* workers = new Workers;

// Of all threads the child has only the one that forked.
void after_fork_in_child() {
  workers = new Workers;
  busy_threads.store(0, std::memory_order_relaxed);
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

void Signal::set(std::uint32_t value) {
  word_.store(value, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex(&word_, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

void Signal::wait_while(std::uint32_t value, const Patience& patience) {
  constexpr int kSpinsPerLook = 16;  // to look at the clock takes as long as a few
  const auto spin = [&] {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (get() != value) return true;
      _mm_pause();
    }
    return false;
  };
  if (spin()) return;
  const auto begin = steady_clock::now();
  while (steady_clock::now() - begin < patience.spins) {
    if (spin()) return;
  }
  while (steady_clock::now() - begin < patience.spins + patience.yields) {
    if (get() != value) return;
    sched_yield();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (word_.load(std::memory_order_seq_cst) == value) futex(&word_, FUTEX_WAIT_PRIVATE, value);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Barrier::wait(int team) {
  if (team == 1) return;
  const std::uint32_t generation = generation_.get();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == team) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.set(generation + 1);
  } else {
    generation_.wait_while(generation, kInCall);
  }
}

void run_on_team(int wanted, const TeamBody& body) {
  const Lease lease(wanted);
  if (lease.size() == 1) return body(0, 1);
  const std::vector<Worker*> taken = workers->take(lease.size() - 1);
  const int team = static_cast<int>(taken.size()) + 1;
  std::vector<Job> jobs;
  jobs.reserve(taken.size());
  for (int thread = 1; thread < team; ++thread) taken[thread - 1]->start(jobs.emplace_back(Job{body, thread, team}));
  thread_local int place = 0;
  bind_to_place(0, team, &place);
  body(0, team);
  for (Worker* worker : taken) worker->finish();
  workers->give_back(taken);
}

}  // namespace ngraph_mxnet
