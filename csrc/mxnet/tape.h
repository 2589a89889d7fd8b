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
#include "mxnet/short_way.h"
#include "mxnet/tape_nodes.h"

namespace ngraph_mxnet {

// Going back from a node runs the backward half of its step, by one of two ways:
// * MXNet's: it plans and runs the whole tape, and calls the node's function on a thread of its own, behind which it
//   has another one finish;
// * the short way (short_way.h), where a pass meets nothing but nodes of ours, operators that were recorded around them,
//   and variables.
namespace tape {

using engine::Handle;

// Returns the functions of libmxnet to be called by way of ours: name, and address of ours. These functions attach
// gradients (MXNet does not tell how an attached gradient is to be written), run operators, go back through the tape,
// reshape or free arrays, or shut MXNet down.
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

// True if the array is a variable, or comes from a node of ours or an operator that a backward pass of ours may go
// through.
bool is_known(Handle array);

// True if there is any node of ours on the tape.
bool is_any();

// True if there is a node of ours whose backward pass in training mode moves statistics.
bool is_any_moving();

// The operators between calls of ours on the way back from these heads, as far as their gradients were not yet compiled
// or refused (`links::add`). None where the pass is MXNet's.
std::vector<LinkDescription> missing_links(const std::vector<Handle>& heads);

// How many backward passes went the short way in this process.
std::size_t short_ways();

}  // namespace tape

}  // namespace ngraph_mxnet
