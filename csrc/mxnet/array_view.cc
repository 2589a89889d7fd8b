#include "mxnet/array_view.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <vector>

#include <mkldnn/oneapi/dnnl/dnnl_types.h>
#include <unistd.h>

namespace ngraph_mxnet {
namespace {

using engine::Handle;

// MXNet's MKLDNNMemory, as far as it is needed.
struct OneDnnMemory {
  std::shared_ptr<void> memory;
  dnnl_memory_desc_t description;

  bool row_major() const {
    if (description.format_kind != dnnl_blocked) return false;
    const dnnl_blocking_desc_t& layout = description.format_desc.blocking;
    dnnl_dim_t stride = 1;
    for (int i = description.ndims; i-- > 0; stride *= description.dims[i]) {
      if (description.dims[i] != 1 && layout.strides[i] != stride) return false;
    }
    return layout.inner_nblks == 0;
  }
};

// Returns the offset at which oneDNN puts an element, in elements. Each inner block, from the innermost, takes its part
// of an index. Strides count whole blocks (dnnl_blocking_desc_t in dnnl_types.h).
dnnl_dim_t offset_of(const dnnl_memory_desc_t& description, const dnnl_dims_t& at) {
  const dnnl_blocking_desc_t& layout = description.format_desc.blocking;
  dnnl_dims_t left;
  for (int axis = 0; axis < description.ndims; ++axis) left[axis] = at[axis] + description.padded_offsets[axis];
  dnnl_dim_t offset = description.offset0, stride = 1;
  for (int block = layout.inner_nblks; block-- > 0; stride *= layout.inner_blks[block]) {
    dnnl_dim_t& index = left[layout.inner_idxs[block]];
    offset += index % layout.inner_blks[block] * stride;
    index /= layout.inner_blks[block];
  }
  for (int axis = 0; axis < description.ndims; ++axis) offset += left[axis] * layout.strides[axis];
  return offset;
}

// Reads memory that may not be there: the system is asked to copy it.
class Reader {
 public:
  Reader() { open_ = pipe(ends_) == 0; }
  ~Reader() {
    if (!open_) return;
    close(ends_[0]);
    close(ends_[1]);
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool readable(const void* data, std::size_t words) const {
    std::vector<char> copy(words * sizeof(void*));
    const auto bytes = static_cast<ssize_t>(copy.size());
    return open_ && write(ends_[1], data, copy.size()) == bytes && read(ends_[0], copy.data(), copy.size()) == bytes;
  }

 private:
  int ends_[2];
  bool open_;
};

}  // namespace

bool ArrayView::plain() const {
  int storage = engine::kDense;
  return mxnet.storage_type(const_cast<Word*>(array_), &storage) == 0 && storage == engine::kDense &&
         device().type == engine::kCpu;
}

const std::int64_t* ArrayView::dims() const {
  const Word* const dims = array_ + kDims;
  return static_cast<const std::int64_t*>(dimensions() <= kNearDims ? static_cast<const void*>(dims)
                                                                    : array_[kMoreDims]);
}

bool ArrayView::is(const TensorSpec& spec) const {
  return type() == spec.element->mxnet && dimensions() == static_cast<int>(spec.shape.size()) &&
         std::equal(spec.shape.begin(), spec.shape.end(), dims());
}

bool ArrayView::is_like(const ArrayView& other) const {
  return type() == other.type() && dimensions() == other.dimensions() &&
         std::equal(dims(), dims() + std::max(dimensions(), 0), other.dims());
}

std::size_t ArrayView::elements() const {
  std::size_t total = 1;
  for (int i = 0; i < dimensions(); ++i) total *= static_cast<std::size_t>(dims()[i]);
  return total;
}

std::size_t ArrayView::bytes() const {
  const Element* const element = element_of_mxnet(type());
  return element == nullptr ? 0 : elements() * element->size;
}

engine::Device ArrayView::device() const {
  if (chunk() == nullptr) return {0, 0};  // as MXNet says of an array that is none
  return *reinterpret_cast<const engine::Device*>(static_cast<const Word*>(chunk()) + kDevice);
}

bool ArrayView::blocked() const {
  const auto* const memory = static_cast<const OneDnnMemory*>(word(chunk(), kOneDnn));
  return memory != nullptr && !memory->row_major();
}

void ArrayView::unblock() const {
  if (!blocked()) return;
  try {
    mxnet.unblock(chunk());
  } catch (const std::exception&) {
    // It stays blocked, and so nobody is given its memory.
  }
}

char* ArrayView::data() const {
  if (blocked()) return nullptr;
  char* const base = static_cast<char*>(const_cast<void*>(word(chunk(), 0)));
  return base == nullptr ? nullptr : base + reinterpret_cast<std::uintptr_t>(array_[kOffset]);
}

char* ArrayView::unblocked(AlignedBuffer* copy) const {
  const dnnl_memory_desc_t& description = static_cast<const OneDnnMemory*>(word(chunk(), kOneDnn))->description;
  const char* const from = static_cast<const char*>(word(chunk(), 0));
  const std::size_t size = element_of_mxnet(type())->size;
  dnnl_dim_t count = 1;
  for (int i = 0; i < description.ndims; ++i) count *= description.dims[i];
  *copy = AlignedBuffer(static_cast<std::size_t>(count) * size);
  dnnl_dims_t at = {};
  for (dnnl_dim_t i = 0; i < count; ++i) {
    std::memcpy(copy->data() + i * size, from + offset_of(description, at) * size, size);
    for (int axis = description.ndims; axis-- > 0;) {
      if (++at[axis] < description.dims[axis]) break;
      at[axis] = 0;
    }
  }
  return copy->data() + reinterpret_cast<std::uintptr_t>(array_[kOffset]);
}

bool ArrayView::usable() {
  static const bool answer = lies_as_expected();
  return answer;
}

bool ArrayView::lies_as_expected() {
  const Reader reader;
  const auto fits = [&](const std::vector<std::int64_t>& shape, const char* element, int device_id) {
    const TensorSpec spec(element, shape);
    Handle array;
    if (mxnet.create(shape.data(), static_cast<int>(shape.size()), engine::kCpu, device_id, 0, spec.element->mxnet,
                     &array) != 0) {
      return false;
    }
    const ArrayView view(array);
    const auto fitting = [&] {
      if (!reader.readable(array, kNode + 3) || !reader.readable(view.chunk(), kVariable + 1)) return false;
      if (!reader.readable(view.variable(), 2)) return false;
      if (view.dimensions() != static_cast<int>(shape.size())) return false;
      if (!reader.readable(view.dims(), shape.size()) || !view.is(spec)) return false;
      if (!(view.device() == engine::Device{engine::kCpu, device_id}) || word(view.chunk(), kOneDnn) != nullptr) {
        return false;
      }
      void* data;
      if (mxnet.data(array, &data) != 0 || data == nullptr || view.data() != data) return false;
      for (std::uint64_t version = 0; version < 3; ++version) {
        if (mxnet.wait_to_read(array) != 0 || view.version() != version || !engine::touch({array})) return false;
      }
      // It may be its own gradient: nobody goes back to it.
      std::uint32_t request = 1;
      if (view.may_be_recorded() || mxnet.mark(1, &array, &request, &array) != 0 || !view.may_be_recorded()) {
        return false;
      }
      if (!reader.readable(view.node().get(), 1) || !reader.readable(word(array, kNode + 1), 2)) return false;
      if (view.node().use_count() != 1 || view.output() != 0 || view.op() != nullptr) return false;
      forget_node(array);
      return !view.may_be_recorded();
    };
    const bool answer = fitting();
    mxnet.free(array);
    return answer;
  };
  return fits({2, 3}, "f32", 0) && fits({3, 1, 2, 2}, "i8", 1) && fits({1, 2, 1, 3, 2, 2}, "i64", 0);
}

}  // namespace ngraph_mxnet
