// Graphs of MXNet's that are one region of ours run without MXNet's operator around them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/prepared_sets.h"
#include "mxnet/engine.h"
#include "mxnet/libmxnet.h"

namespace ngraph_mxnet {

// An executor's forward, or a cached op's call, pushes to MXNet's engine what reads the inputs and writes the outputs,
// as MXNet does; the engine keeps their order, versions and exceptions. What differs:
// * if nothing is under way on any of the arrays, a graph that takes less than a millisecond runs on the caller's
//   thread, and a longer one on a thread of ours: to wake up a thread takes MXNet 50 microseconds and more;
// * nothing is written to that all operators of extensions write to, so that calls of several threads overlap.
// Where something is under way, it runs behind that; where an array is none of the plain ones, the call is MXNet's own.
class DirectExecutor;

// A graph on arrays of MXNet's, of which it keeps handles: a step of training.
class BoundGraph {
 public:
  // `in_place`: the graph may write an output over an input, where both are the same handle. `given`: the graph's first
  // input is no array; each run is given it.
  BoundGraph(std::shared_ptr<CompiledGraph> graph, const std::vector<std::uintptr_t>& inputs,
             const std::vector<std::uintptr_t>& outputs, bool in_place, bool given);

  // True if the graph can run on these arrays. The arrays must be dense and of the graph's types. No output may share
  // memory with another array, except as `in_place` allows.
  bool possible() const { return bound_ != nullptr; }

  // Pushes a run to MXNet's engine; `here`: the caller has nothing else to do, so a short run may be on its thread.
  // False: nothing was done, for the profiler runs, unless it may be `profiled`, or an array has no memory. Throws
  // std::invalid_argument if `given` has not as many bytes as the graph's first input, or there is none to be given.
  bool run(std::string given, bool here, bool profiled) const;

 private:
  std::size_t given_bytes_;
  std::shared_ptr<DirectExecutor> bound_;
};

namespace direct {

using engine::Handle;

// The functions of libmxnet to be called by way of ours, name and address of ours: those that run executors and cached
// ops, in turns and past MXNet where that is possible; those that end what is direct; and those that tell of the
// profiler.
Replacements replacements();

// True if calls may go past MXNet: the engine queues, and the layout of arrays is known.
bool possible();

// True if MXNet's profiler runs.
bool profiles();

// From now on this executor runs past MXNet where it can. Its one op was made for `holder`; `inputs` and `outputs` are
// handles of the op's arrays. Nothing is done where the layout of arrays is not known.
void add_executor(std::uintptr_t executor, const std::shared_ptr<ArrayHolder>& holder,
                  const std::vector<std::uintptr_t>& inputs, const std::vector<std::uintptr_t>& outputs);

// From now on this cached op runs past MXNet where it can; its ops are made for `holder`. `inputs`: which of the
// graph's inputs each of the op's is; `outputs`: which of the op's outputs each of the graph's is. False where the
// layout of arrays is not known.
bool add_cached_op(std::uintptr_t op, const std::shared_ptr<ArrayHolder>& holder, std::vector<std::size_t> inputs,
                   std::vector<std::size_t> outputs);

// The outputs of a cached op that runs past MXNet's, in handles that are the caller's then; none: it can't now.
std::vector<Handle> call(Handle op, const std::vector<Handle>& inputs);

}  // namespace direct
}  // namespace ngraph_mxnet
