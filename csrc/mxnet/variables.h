// Arrays that gradients are attached to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor_spec.h"
#include "mxnet/direct_runs.h"
#include "mxnet/libmxnet.h"

namespace ngraph_mxnet {

enum Request : std::uint32_t { kNothing = 0, kAdd = 3 };  // OpReqType of MXNet's op_attr_types.h; the others write

// Variables on autograd's tape, with what was attached to them.
struct Variables {
  Variables() = default;
  ~Variables();
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  Arrays arrays;                          // copies of the handles: the variables' nodes live as long
  std::vector<engine::Handle> gradients;  // as many
  std::vector<std::uint32_t> requests;
  bool known = true;  // else going back is MXNet's
};

namespace variables {

// Returns the functions of libmxnet that attach gradients, to be called by way of ours: name, and address of ours. MXNet
// does not tell how an attached gradient is to be written.
Replacements replacements();

// `specs`: of the gradients.
std::shared_ptr<const Variables> of(const std::vector<engine::Handle>& arrays, const std::vector<TensorSpec>& specs);

}  // namespace variables
}  // namespace ngraph_mxnet
