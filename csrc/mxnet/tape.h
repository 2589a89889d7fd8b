// Nodes of ours on autograd's tape.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mxnet/libmxnet.h"
#include "mxnet/recorded_steps.h"
#include "mxnet/variables.h"

namespace ngraph_mxnet {

// Going back from a node runs the backward half of its step, by one of two ways:
// * MXNet's: it plans and runs the whole tape, and calls the node's function on a thread of its own, behind which it has
//   another one finish;
// * the short way, where a pass begins at one output and meets nothing but nodes of ours in a row, and variables: the
//   halves are pushed to the engine there and then, and write the variables' gradients where MXNet would.
namespace tape {

using engine::Handle;

// Returns the functions of libmxnet to be called by way of ours: name, and address of ours. These functions go back through
// the tape, reshape or free arrays, or shut MXNet down.
Replacements replacements();

// Records a node, for this thread is recording: the outputs come from what the plan says. The step is given back when the
// node was gone back through for the last time, or is gone. `variables`: those of the recorded parameters. Throws
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
