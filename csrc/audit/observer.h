// Records what calls of a compiled graph read and gave; and stops those whose numbers are out of bounds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "audit/tensor_statistics.h"
#include "core/executor.h"

namespace ngraph_mxnet {

// One tensor of a call. `place`: the graph's inputs, then its outputs, are numbered.
struct Observation {
  std::uint64_t call;  // see ObservedCall
  std::uint32_t place;
  TensorContent content;
};

// A call, or the weights that later calls read.
struct ObservedCall {
  std::uint64_t id;      // counts in this process, from 1 on
  std::uint64_t graph;
  std::uint64_t number;  // of the graph's calls, from 0 on
  std::uint64_t weights;  // the id of those that a call read; 0: there are none
  std::int64_t begin;    // nanoseconds since the epoch
  std::int64_t seconds;  // nanoseconds: of the call, without what it takes to observe it
  std::int64_t thread;
  std::int64_t resident, peak;  // of weights: the process's memory in bytes, after the first call with them
  std::uint8_t are_weights;
};

struct Observations {
  std::vector<ObservedCall> calls;
  std::vector<Observation> tensors;
  std::uint64_t dropped;  // calls, for nobody took what was recorded
};

// The id of one more.
std::uint64_t new_observation();

// Returns what this process has recorded since the last call, and forgets it. A forked child begins with nothing.
Observations take_observations();

// Takes back observations that are no longer needed: their memory serves again, unless it is too large.
void give_back(Observations taken);

// A call gave numbers that are out of bounds.
class OutOfBounds : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Observer {
 public:
  // The bounds of the elements of float tensors. NaN is out of all bounds.
  struct Bounds {
    double low, high;
    bool infinite;  // whether infinite numbers are within
  };

  // Which calls are recorded: the first so many, or every so many, if that is not 0.
  struct Selection {
    std::uint64_t first, every;
  };

  // The text of the error when the output of this number is out of bounds.
  using Explain = std::function<std::string(CompiledGraph* graph, const std::vector<InputTensor>& inputs,
                                            std::size_t output, const TensorStatistics& statistics)>;

  // `weights`: which inputs are such, ascending. `explain` is empty where there are no bounds.
  Observer(std::uint64_t graph, std::vector<std::size_t> weights, Selection selection, Bounds bounds, Explain explain,
           int threads);

  // Runs it on these tensors. Throws OutOfBounds.
  void run(CompiledGraph* graph, const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs,
           ArrayHolder* holder);

  // From now on it only runs.
  void stop() { stopped_.store(true); }

 private:
  bool is_chosen(std::uint64_t number) const;
  PreparedSets& sets(const CompiledGraph& graph);
  std::uint64_t weights_of(const CompiledGraph& graph, const std::vector<InputTensor>& inputs, ArrayHolder* holder,
                           Observations* found);

  std::uint64_t graph_;
  std::vector<std::size_t> weights_;
  Selection selection_;
  Bounds bounds_;
  Explain explain_;
  int threads_;
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint64_t> calls_{0};
  ForkSafeMutex mutex_{Rank::kObserver};
  std::shared_ptr<PreparedSets> sets_;  // in place of prepared weights, the ids of those that were recorded
  // How many forks led to the process that made `sets_`: a child makes its own, for what its parent recorded is not the
  // child's. Where it is this process's number, nobody writes to `sets_` any more.
  std::atomic<std::uint64_t> generation_{~std::uint64_t{0}};
};

}  // namespace ngraph_mxnet
