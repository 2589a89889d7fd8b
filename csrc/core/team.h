// Teams of threads: what they work on, how many a call gets, and what a fork changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "core/aligned_buffer.h"

namespace ngraph_mxnet {

// A number that threads wait to see changed.
class Signal {
 public:
  std::uint32_t get() const { return word_.load(std::memory_order_acquire); }
  // Wakes who sleeps.
  void add(std::uint32_t value);
  // Returns when the number is another than `value`. Keeps the core busy for so long before it sleeps: to be woken up
  // then takes 50 microseconds and more. With `yields`, what else has work gets the core at once.
  void wait_while(std::uint32_t value, std::chrono::nanoseconds spins, bool yields);
  bool has_sleepers() const { return sleepers_.load(std::memory_order_relaxed) > 0; }

 private:
  std::atomic<std::uint32_t> word_{0};
  std::atomic<int> sleepers_{0};
};

// Phases, one after the other, each of chunks. The threads that are there take chunks of the phase that is open, and
// what ends a phase is that its chunks are done: nobody waits for a thread that has not come. Its methods must not
// throw.
class TeamWork {
 public:
  struct Phase {
    int chunks;
    bool serial;  // in order, on one thread
  };

  virtual int phases() const = 0;
  virtual Phase phase(int number) const = 0;
  virtual void run(int phase, int chunk) = 0;
  // Called once when a phase is over, before the next begins.
  virtual void ended(int) {}

 protected:
  ~TeamWork() = default;
};

// Returns when all is done, by at most `wanted` threads, this one among them. There are fewer while other calls keep
// cores busy, or the system gives no more threads, and no more than cores that the process may use.
void run_on_team(int wanted, TeamWork* work);

// True if the threads that a team would get are asleep.
bool team_sleeps();

// One phase of so many chunks.
void run_on_team(int wanted, int chunks, const std::function<void(int chunk)>& run);

}  // namespace ngraph_mxnet
