// Teams of OpenMP threads: how many a call gets, how they meet, and what a fork changes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "aligned_buffer.h"

namespace ngraph_mxnet {

// A barrier for short waits: spins, then yields, then sleeps. libgomp's own barrier obeys
// OMP_WAIT_POLICY; under "passive" it costs a hundred times more.
class Barrier {
 public:
  void wait(int team);

 private:
  alignas(kAlignment) std::atomic<int> arrived_{0};
  alignas(kAlignment) std::atomic<std::uint32_t> generation_{0};
  std::atomic<int> sleepers_{0};
};

using TeamBody = std::function<void(int thread, int team)>;

// Calls `body` once on each thread of a team of at most `wanted`, in one parallel region, and returns
// when all are done. The team is smaller while other calls keep cores busy. `body` must not throw.
void run_on_team(int wanted, const TeamBody& body);

}  // namespace ngraph_mxnet
