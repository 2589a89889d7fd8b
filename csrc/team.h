// Teams of OpenMP threads: how many a call gets, how they meet, and what a fork changes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "aligned_buffer.h"

namespace ngraph_mxnet {

// Where threads wait for something that others bring about: for short waits, as they spin, then yield, then sleep.
// libgomp's own barrier obeys OMP_WAIT_POLICY; under "passive" it costs a hundred times more.
class Waiting {
 public:
  // Until `done()`, which is true for good once `changed` was called after it became so.
  template <class Done>
  void wait(Done done) {
    for (int i = 0; i < kSpins; ++i) {
      if (done()) return;
      pause();
    }
    for (int i = 0; i < kYields; ++i) {
      if (done()) return;
      yield();
    }
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
      const std::uint32_t seen = changes_.load(std::memory_order_seq_cst);
      if (done()) break;
      sleep(seen);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  void changed();

 private:
  static constexpr int kSpins = 2000;  // some tens of microseconds
  static constexpr int kYields = 200;

  static void pause();
  static void yield();
  void sleep(std::uint32_t seen);  // unless something has changed since

  alignas(kAlignment) std::atomic<std::uint32_t> changes_{0};
  std::atomic<int> sleepers_{0};
};

using TeamBody = std::function<void(int thread, int team)>;

// Calls `body` once on each thread of a team of at most `wanted`, in one parallel region, and returns
// when all are done. The team is smaller while other calls keep cores busy. `body` must not throw.
void run_on_team(int wanted, const TeamBody& body);

}  // namespace ngraph_mxnet
