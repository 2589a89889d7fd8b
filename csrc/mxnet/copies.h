// Copies to NDArrays that need no other thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mxnet/engine.h"

namespace ngraph_mxnet {
namespace copies {

// Copies all of one NDArray to another, by their handles, as MXNet's copyto, if that can be done at once: both are dense,
// of one type and shape, in the CPU's memory, small, and at rest, and autograd does not record. Else false, and nothing is done.
bool copy_now(std::uintptr_t from, std::uintptr_t to);

// Writes all `elements` of an NDArray, under the same conditions.
bool write_now(engine::Handle array, const void* data, std::size_t elements);

}  // namespace copies
}  // namespace ngraph_mxnet
