#include "mxnet/pushes.h"

#include "mxnet/direct.h"
#include "mxnet/engine.h"
#include "mxnet/libmxnet.h"
#include "mxnet/turns.h"

namespace ngraph_mxnet {
namespace {

using engine::Handle;

int forward(Handle executor, int is_train) {
  Turn turn;
  if (!is_train && direct::forward(executor)) return 0;
  return mxnet.executor_forward(executor, is_train);
}

int backward(Handle executor, std::uint32_t count, Handle* head_gradients, int is_train) {
  Turn turn;
  return mxnet.executor_backward(executor, count, head_gradients, is_train);
}

int cached_op(Handle op, int inputs, Handle* in, int* outputs, Handle** out, const int** storage_types) {
  Turn turn;
  thread_local std::vector<Handle> made;
  thread_local std::vector<int> types;
  if (*outputs == 0) made = direct::call(op, std::vector<Handle>(in, in + inputs));
  if (*outputs == 0 && !made.empty()) {
    types.assign(made.size(), engine::kDense);
    *outputs = static_cast<int>(made.size());
    *out = made.data();
    *storage_types = types.data();
    return 0;
  }
  const int result = mxnet.cached_op(op, inputs, in, outputs, out, storage_types);
  if (result == 0) direct::learn(op);
  return result;
}

}  // namespace

std::vector<Handle> pushes::call(Handle op, const std::vector<Handle>& inputs) {
  Turn turn;
  return direct::call(op, inputs);
}

Replacements pushes::replacements() {
  return {{"MXExecutorForward", address_of(forward)},
          {"MXExecutorBackwardEx", address_of(backward)},
          {"MXInvokeCachedOpEx", address_of(cached_op)}};
}

}  // namespace ngraph_mxnet
