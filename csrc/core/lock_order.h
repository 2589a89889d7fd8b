// The order in which one thread may hold several locks: each has a rank, and whoever holds some takes only higher ones.
// So no two threads wait for each other.
#pragma once

#include <mutex>

namespace ngraph_mxnet {

// Outermost first. A new lock gets a place where all that is taken while it is held comes behind it.
enum class Rank : int {
  kReferences,      // artefact/runtime.cc: a model's reference runs
  kBoundModels,     //   what was bound to shapes
  kIdleRuns,        //   what waits for a call
  kTapeNode,        // mxnet/tape_nodes.h: the copies of one node
  kTapeNodes,       //   all nodes
  kLinks,           // mxnet/short_way.cc: compiled links
  kFamilies,        //   those that differ in numbers
  kConstants,       //   gradients of one number
  kOperators,       // mxnet/operators.h: those seen
  kRecordedSteps,   // mxnet/recorded_steps.h
  kRecordedCalls,   // mxnet/recorded.cc
  kDirectOps,       // mxnet/direct.cc: by handle
  kDirectOp,        //   one of them
  kCompileCache,    // mxnet/compile_cache.h
  kPackagedGraph,   // artefact/artefact_module.cc
  kObserver,        // audit/observer.cc
  kObservations,    // audit/observer.cc: the queue
  kKnownSets,       // core/prepared_sets.cc: all
  kPreparedSets,    //   those of one program
  kArrayHolders,    // core/prepared_sets.cc
  kVariables,       // mxnet/tape_nodes.h
  kSpareArrays,     // mxnet/recorded_steps.h
  kIdleArenas,      // core/program_runner.cc
  kTraces,          // core/trace.cc: the rings of all threads
  kInnermost,       // under which nothing is taken: a ring, a team's workers
};

// Kept by a lock: called when this thread is about to take it, and when it has let go.
void about_to_lock(Rank rank);
void unlocked(Rank rank);

// A mutex that forks need not find free.
class RankedMutex {
 public:
  explicit RankedMutex(Rank rank) : rank_(rank) {}

  void lock() {
    about_to_lock(rank_);
    mutex_.lock();
  }
  void unlock() {
    mutex_.unlock();
    unlocked(rank_);
  }

 private:
  const Rank rank_;
  std::mutex mutex_;
};

}  // namespace ngraph_mxnet
