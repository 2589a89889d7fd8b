// Makes MXNet's versions of arrays tell of every write, and knows the arrays that others write to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/prepared_sets.h"
#include "mxnet/libmxnet.h"

namespace ngraph_mxnet {

// MXNet raises an array's version when its engine has run what writes to the array. Two kinds of writers it does not
// count so: copies on the caller's thread raise the version before they write, and whoever shares an array's memory
// raises none. Functions of libmxnet's C interface through which they come are therefore called by way of these here.
namespace mxnet_writers {

// The functions of libmxnet that are to be called by way of ours: name, and address of ours.
Replacements replacements();

// Copies all of one NDArray to another, by their handles, as MXNet's copyto, if that can be done at once: both are
// dense, of one type and shape, in the CPU's memory, small, and at rest, and autograd does not record. Else false, and
// nothing is done.
bool copy_now(std::uintptr_t from, std::uintptr_t to);

// From now on `holder` holds these NDArrays. Their versions rise.
void hold(const std::shared_ptr<ArrayHolder>& holder, const std::vector<std::uintptr_t>& arrays);

// Before the holder lets go of these NDArrays. When the calls that were made with them are over, it forgets them.
void release(const std::shared_ptr<ArrayHolder>& holder, const std::vector<std::uintptr_t>& arrays);

// Sets how many operators of this thread the engine may run as one, and runs those that it has gathered; the number
// before. Within such a bulk versions do not rise.
int set_bulk(int operators);

}  // namespace mxnet_writers
}  // namespace ngraph_mxnet
