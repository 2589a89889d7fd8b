// One run of a compiled graph on NDArrays, as an operator of MXNet's engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/executor.h"
#include "core/prepared_sets.h"
#include "mxnet/engine.h"

namespace ngraph_mxnet {

// Handles of arrays that are freed with it.
class Arrays {
 public:
  Arrays() = default;
  ~Arrays();
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  // All return false when MXNet has failed.
  bool add_same(engine::Handle array);
  bool add_reshaped(engine::Handle array, const std::vector<std::int64_t>& shape);  // of the same memory
  bool add_new(const TensorSpec& spec, engine::Device device);

  const std::vector<engine::Handle>& handles() const { return handles_; }
  void disown() { handles_.clear(); }

 private:
  std::vector<engine::Handle> handles_;
};

namespace direct_runs {

using engine::Handle;

// True if the arrays have these types and shapes, are dense, and lie in the CPU's own memory.
bool all_plain(const std::vector<Handle>& arrays, const std::vector<TensorSpec>& specs);

// The arrays among these that share no memory; none if one shares its memory with one of `others`.
std::vector<Handle> apart(const std::vector<Handle>& arrays, const std::vector<Handle>& others);

// Runs that take longer, in seconds, are not on the caller's thread.
constexpr double kShort = 1e-3;

// Runs the graph, or leaves the run to another thread. Returns false if it did neither. `read`: those of the inputs
// that share no memory. If `given` has bytes, they are the graph's first input, and `inputs` are the others.
bool run(const std::shared_ptr<CompiledGraph>& graph, const std::shared_ptr<ArrayHolder>& holder,
         const std::vector<Handle>& inputs, const std::vector<Handle>& outputs, const std::vector<Handle>& read,
         engine::Device device, std::string given = {}, double longest_here = kShort);

// The same for arrays of the graph's types of which no output shares memory with another array; else false.
bool run_plain(const std::shared_ptr<CompiledGraph>& graph, const std::shared_ptr<ArrayHolder>& holder,
               const std::vector<Handle>& inputs, const std::vector<Handle>& outputs);

// How many there were in this process.
std::size_t count();

// Waits until none is under way.
void finish();

}  // namespace direct_runs
}  // namespace ngraph_mxnet
