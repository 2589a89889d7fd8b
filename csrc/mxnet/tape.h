// Nodes of ours on autograd's tape, and the arrays that gradients are attached to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor_spec.h"
#include "mxnet/direct_runs.h"
#include "mxnet/libmxnet.h"
#include "mxnet/recorded_steps.h"

namespace ngraph_mxnet {

enum Request : std::uint32_t { kNothing = 0, kAdd = 3 };  // OpReqType of MXNet's op_attr_types.h; the others write

// Variables on autograd's tape, with what was attached to them.
struct Variables {
  Variables() = default;
  ~Variables() {
    for (engine::Handle gradient : gradients) mxnet.free(gradient);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  Arrays arrays;                          // copies of the handles: the variables' nodes live as long
  std::vector<engine::Handle> gradients;  // as many
  std::vector<std::uint32_t> requests;
  bool known = true;  // else going back is MXNet's
};

// Going back from a node runs the backward half of its step, by one of two ways:
// * MXNet's: it plans and runs the whole tape, and calls the node's function on a thread of its own, behind which it
//   has another one finish;
// * the short way, where a pass begins at one output and meets nothing but nodes of ours in a row, and variables: the
//   halves are pushed to the engine there and then, and write the variables' gradients where MXNet would.
namespace tape {

using engine::Handle;

// Returns the functions of libmxnet to be called by way of ours: name, and address of ours. These functions attach
// gradients (MXNet does not tell how an attached gradient is to be written), go back through the tape, reshape or free
// arrays, or shut MXNet down.
Replacements replacements();

// What is attached to these arrays; `specs`: of the gradients.
std::shared_ptr<const Variables> variables_of(const std::vector<Handle>& arrays, const std::vector<TensorSpec>& specs);

// Records a node, for this thread is recording: the outputs come from what the plan says. The step is given back when
// the node was gone back through for the last time, or is gone. `variables`: those of the recorded parameters. Throws
// std::runtime_error.
void record(const std::shared_ptr<RecordedSteps>& steps, int step, const std::shared_ptr<const Variables>& variables,
            const std::vector<Handle>& arguments, const std::vector<Handle>& outputs);

// True if the array comes from a node of ours that a backward pass can still go through.
bool is_ours(Handle array);

// True if there is any node of ours on the tape.
bool is_any();

// True if there is a node of ours whose backward pass in training mode moves statistics.
bool is_any_moving();

// How many backward passes went the short way in this process.
std::size_t short_ways();

}  // namespace tape

}  // namespace ngraph_mxnet
