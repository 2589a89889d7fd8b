// Teams of threads: how many a call gets, how they meet, and what a fork changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

#include "aligned_buffer.h"

namespace ngraph_mxnet {

// How long a thread that waits keeps its core busy, before it offers it to others, and before it sleeps. To wake it up
// then takes 50 microseconds and more.
struct Patience {
  std::chrono::nanoseconds spins, yields;
};

// A number that threads wait to see changed.
class Signal {
 public:
  std::uint32_t get() const { return word_.load(std::memory_order_acquire); }
  void set(std::uint32_t value);
  void wait_while(std::uint32_t value, const Patience& patience);

 private:
  std::atomic<std::uint32_t> word_{0};
  std::atomic<int> sleepers_{0};
};

class Barrier {
 public:
  void wait(int team);

 private:
  alignas(kAlignment) std::atomic<int> arrived_{0};
  alignas(kAlignment) Signal generation_;
};

using TeamBody = std::function<void(int thread, int team)>;

// Calls `body` once on each thread of a team of at most `wanted`, this thread among them, and returns when all are done.
// The team is smaller while other calls keep cores busy, or the system gives no more threads. `body` must not throw.
void run_on_team(int wanted, const TeamBody& body);

}  // namespace ngraph_mxnet
