// Properties of an NDArray, read from its memory: MXNet's C interface does not tell them, or tells them slowly.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/tensor_spec.h"
#include "mxnet/engine.h"

namespace ngraph_mxnet {

// The layout is that of the wheel of MXNet 1.9.1: NDArray and NDArray::Chunk of its ndarray.h, Var of its engine.h,
// MKLDNNMemory of its mkldnn_base-inl.h. None may be made unless `usable`.
class ArrayView {
 public:
  explicit ArrayView(engine::Handle array) : array_(static_cast<const Word*>(array)) {}

  // True if arrays made for the purpose lie in memory as expected. The first call may start MXNet's engine, and its
  // answer is kept.
  static bool usable();

  // Dense, and in the CPU's own memory.
  bool plain() const;
  bool is(const TensorSpec& spec) const;
  bool is_of(const Element& element) const { return type() == element.mxnet; }
  const Element* element() const { return element_of_mxnet(type()); }  // null of a type that we do not know
  std::vector<std::int64_t> shape() const { return {dims(), dims() + std::max(dimensions(), 0)}; }
  bool is_like(const ArrayView& other) const;  // of one type and shape
  std::size_t elements() const;
  std::size_t bytes() const;  // 0 of a type that we do not know
  engine::Device device() const;
  // The same for all arrays that share memory.
  const void* variable() const { return word(chunk(), kVariable); }
  // True if the array may have a gradient attached, or may come from what autograd has recorded. False only if neither
  // is so.
  bool may_be_recorded() const { return array_[kNode] != nullptr; }
  // True if the array's type is one that gradients are taken by: float32 or float16.
  bool has_gradients() const { return type() == kFloat32 || type() == kFloat16; }
  // The node on autograd's tape that it comes from, if any, and which of the node's outputs it is.
  const std::shared_ptr<const void>& node() const {
    return *reinterpret_cast<const std::shared_ptr<const void>*>(array_ + kNode);
  }
  // The operator of that node; null: it is a variable.
  engine::Handle op() const { return *static_cast<const engine::Handle*>(node().get()); }
  std::uint32_t output() const { return *reinterpret_cast<const std::uint32_t*>(array_ + kNode + 2); }
  // From now on it comes from no node, as after a backward pass.
  static void forget_node(engine::Handle array) {
    reinterpret_cast<std::shared_ptr<const void>*>(static_cast<Word*>(array) + kNode)->reset();
  }

  // True if nobody else has the array's memory: no other handle, no view, no operator under way.
  bool is_only() const {
    const bool only = reinterpret_cast<const std::shared_ptr<const void>*>(array_)->use_count() == 1;
    std::atomic_thread_fence(std::memory_order_acquire);  // behind what the last other one has written
    return only;
  }

  // The rest only where the engine keeps writers out.

  // Rises with every write.
  std::uint64_t version() const { return *version_at(); }
  const std::uint64_t* version_at() const { return static_cast<const std::uint64_t*>(variable()) + 1; }

  // True if oneDNN has laid the array out in a way of its own.
  bool blocked() const;

  // Its elements, row-major; null if there is no memory yet, or they lie in another way.
  char* data() const;

  // Lays a blocked array out row-major again. Call it only where the engine keeps all others out.
  void unblock() const;

  // If it is blocked: all that its memory holds, row-major, into `copy`, and where in it the elements are.
  char* unblocked(AlignedBuffer* copy) const;

 private:
  using Word = const void*;
  static constexpr std::size_t kDims = 3, kMoreDims = 7, kOffset = 8, kType = 9, kNode = 11;  // words of an NDArray
  static constexpr std::size_t kDevice = 2, kOneDnn = 7, kVariable = 9;                      // words of a Chunk
  static constexpr int kNearDims = 4;
  static constexpr int kFloat32 = 0, kFloat16 = 2;  // MXNet's numbers

  static const void* word(const void* base, std::size_t at) { return static_cast<const Word*>(base)[at]; }
  static bool lies_as_expected();

  const void* chunk() const { return array_[0]; }
  int dimensions() const { return *reinterpret_cast<const int*>(array_ + kDims - 1); }
  const std::int64_t* dims() const;
  int type() const { return *reinterpret_cast<const int*>(array_ + kType); }

  const Word* array_;
};

}  // namespace ngraph_mxnet
