// Processes that compute on the same cores, and how they share them.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/aligned_buffer.h"

namespace ngraph_mxnet {

// Counts of busy threads that the processes of one user tell each other, in a file of shared memory that all of them map.
// Threads that outnumber the cores take cores from each other in the middle of their work. Two processes that both use all
// cores are slower than if each used half. The counts are hints: no result depends on them. A process that ends without a
// word is forgotten within seconds. Where there is no shared memory, each process is alone.
class Neighbours {
 public:
  // Threads that others keep busy, in so many processes.
  struct Busy {
    int threads = 0, processes = 0;
  };

  // The file is made if it is not there.
  explicit Neighbours(const std::string& path);
  // The user's own, or nullptr: NGRAPH_SHARE_CORES=0, threads bound to places, no shared memory.
  static Neighbours* instance();

  // Returns the busy threads of those other processes that may use exactly the cores `cores`, a value of `core_set`.
  Busy busy(std::uint64_t cores) const;
  // So many threads of this process have begun to compute on these cores, or still do.
  void begin(std::uint64_t cores, int threads);
  // None of this process computes any more. For another `ticks`, what it took, others still count `threads`: who computes
  // half of the time goes on soon.
  void end(int threads, std::uint64_t ticks);
  // In the child, whose slot is the parent's.
  static void after_fork();

  // A number for the set of cores that the calling thread may use.
  static std::uint64_t core_set();
  // A clock that is the same on all cores and takes a few nanoseconds to read.
  static std::uint64_t ticks();

 private:
  static constexpr int kSlots = 127;

  struct alignas(kAlignment) Slot {
    std::atomic<std::uint64_t> owner{0};  // 0: nobody's
    std::atomic<std::uint64_t> cores{0};
    std::atomic<std::uint64_t> until{0};  // ticks; others count the threads so long
    std::atomic<std::uint64_t> threads{0};
  };
  struct Table {
    alignas(kAlignment) std::atomic<std::uint64_t> used{0};  // slots that were ever anyone's
    Slot slots[kSlots];
  };

  // Its own, or nullptr: all are taken. Two threads that claim one at once waste one.
  Slot* slot();

  Table* table_ = nullptr;
  std::atomic<Slot*> slot_{nullptr};
  std::atomic<std::uint64_t> owner_{0};
};

}  // namespace ngraph_mxnet
