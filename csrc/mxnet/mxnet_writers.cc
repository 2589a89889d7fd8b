#include "mxnet/mxnet_writers.h"

#include <cstring>
#include <stdexcept>
#include <utility>

#include <dlpack/dlpack.h>

#include "mxnet/array_view.h"
#include "mxnet/engine.h"

namespace ngraph_mxnet {

namespace {

using engine::Handle;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // a tenth of a millisecond

// Writes all bytes of the array at once, from the address that `source` returns then. Returns false if nothing was
// written.
template <class Source>
bool write_bytes(const Source& source, const std::vector<Handle>& read, Handle to, const ArrayView& written,
                 const char* name) {
  const std::size_t bytes = written.bytes();
  if (bytes == 0 || bytes > kMostBytes) return false;
  const auto write = [&](const engine::Completion& completion) {
    const void* const from = source();
    char* const target = written.data();
    if (from == nullptr || target == nullptr) return false;
    std::memcpy(target, from, bytes);
    completion();
    return true;
  };
  return engine::run_now(write, read, {to}, written.device(), name) == engine::Outcome::kRan;
}

// Writes all `elements` of an NDArray, as `copy_now` and under its conditions.
bool write_now(Handle array, const void* data, std::size_t elements) {
  const ArrayView written(array);
  if (!engine::queues() || !ArrayView::usable() || !written.plain() || elements != written.elements()) return false;
  return write_bytes([&] { return data; }, {}, array, written, "SyncCopyFromCPU");
}

// MXNet wakes up a thread of its engine to ask whether it may write, which takes a hundred microseconds; and it raises
// the version first and copies then: whoever reads meanwhile would take what it read for this version's.
int copy_from_cpu(Handle array, const void* data, std::size_t size) {
  if (write_now(array, data, size)) return 0;
  const std::uint64_t begun = DirectCopies::begin();
  const int result = mxnet.copy_from_cpu(array, data, size);
  // It counts as over when the version has risen once more, also where the engine does not run what fails.
  const auto end = [](void* argument) { DirectCopies::end(reinterpret_cast<std::uintptr_t>(argument)); };
  const bool pushed = result == 0 && engine::touch({array}, end, reinterpret_cast<void*>(begun));
  if (!pushed) DirectCopies::end(begun);
  return result;
}

std::size_t bytes_of(const DLTensor& tensor) {
  std::size_t bytes = (static_cast<std::size_t>(tensor.dtype.bits) * tensor.dtype.lanes + 7) / 8;
  for (int i = 0; i < tensor.ndim; ++i) bytes *= static_cast<std::size_t>(tensor.shape[i]);
  return bytes;
}

const void* memory_of(const DLTensor& tensor) { return static_cast<const char*>(tensor.data) + tensor.byte_offset; }

// A tensor that MXNet is given or gives: who has shared its memory may write to it until the deleter runs.
struct Share {
  DLManagedTensor tensor;    // given: in place of the owner's
  DLManagedTensor original;  // as it was
  DLManagedTensor* owners;   // where it was; null: whoever made it does not keep it there
};

void end_of_given(DLManagedTensor* self) {
  auto* share = static_cast<Share*>(self->manager_ctx);
  OutsideWriters::remove(memory_of(share->original.dl_tensor), bytes_of(share->original.dl_tensor));
  DLManagedTensor* const owners = share->owners != nullptr ? share->owners : &share->original;
  if (owners->deleter != nullptr) owners->deleter(owners);
  delete share;
}

int from_dlpack_ex(DLManagedTensor* tensor, bool transient, Handle* array) {
  auto* share = new Share{*tensor, *tensor, transient ? nullptr : tensor};
  share->tensor.manager_ctx = share;
  share->tensor.deleter = end_of_given;
  const void* const memory = memory_of(tensor->dl_tensor);
  const std::size_t bytes = bytes_of(tensor->dl_tensor);
  OutsideWriters::add(memory, bytes);
  const int result = mxnet.from_dlpack(&share->tensor, false, array);
  if (result != 0) {
    OutsideWriters::remove(memory, bytes);
    delete share;
  }
  return result;
}

int from_dlpack(DLManagedTensor* tensor, Handle* array) { return from_dlpack_ex(tensor, false, array); }

void end_of_taken(DLManagedTensor* self) {
  auto* share = static_cast<Share*>(self->manager_ctx);
  OutsideWriters::remove(memory_of(share->original.dl_tensor), bytes_of(share->original.dl_tensor));
  self->manager_ctx = share->original.manager_ctx;
  self->deleter = share->original.deleter;
  delete share;
  if (self->deleter != nullptr) self->deleter(self);
}

int to_dlpack(Handle array, DLManagedTensor** tensor) {
  const int result = mxnet.to_dlpack(array, tensor);
  if (result == 0) {
    auto* share = new Share{**tensor, **tensor, nullptr};
    (*tensor)->manager_ctx = share;
    (*tensor)->deleter = end_of_taken;
    OutsideWriters::add(memory_of((*tensor)->dl_tensor), bytes_of((*tensor)->dl_tensor));
  }
  return result;
}

}  // namespace

bool mxnet_writers::copy_now(std::uintptr_t from, std::uintptr_t to) {
  const auto source = reinterpret_cast<Handle>(from), target = reinterpret_cast<Handle>(to);
  const ArrayView read(source), written(target);
  if (!engine::queues() || !ArrayView::usable() || !read.plain() || !written.plain()) return false;
  bool recording = true;
  if (mxnet.is_recording(&recording) != 0 || recording) return false;
  if (!read.is_like(written) || read.variable() == written.variable()) return false;
  return write_bytes([&] { return read.data(); }, {source}, target, written, "CopyCPU2CPU");
}

Replacements mxnet_writers::replacements() {
  return {{"MXNDArraySyncCopyFromCPU", address_of(copy_from_cpu)},
          {"MXNDArrayFromDLPack", address_of(from_dlpack)},
          {"MXNDArrayFromDLPackEx", address_of(from_dlpack_ex)},
          {"MXNDArrayToDLPack", address_of(to_dlpack)}};
}

void mxnet_writers::hold(const std::shared_ptr<ArrayHolder>& holder, const std::vector<std::uintptr_t>& arrays) {
  for (std::uintptr_t address : arrays) {
    const auto array = reinterpret_cast<Handle>(address);
    int type = 0, id = 0;
    engine::check(mxnet.context(array, &type, &id) == 0);
    if (type == engine::kSharedMemory) holder->distrust();
    engine::check(engine::touch({array}));
  }
}

void mxnet_writers::release(const std::shared_ptr<ArrayHolder>& holder, const std::vector<std::uintptr_t>& arrays) {
  using Kept = std::shared_ptr<ArrayHolder>;
  for (std::uintptr_t address : arrays) {
    const auto forget = [](void* kept) {
      (*static_cast<Kept*>(kept))->forget();
      delete static_cast<Kept*>(kept);
    };
    engine::check(engine::touch({reinterpret_cast<Handle>(address)}, forget, new Kept(holder)));
  }
}

int mxnet_writers::set_bulk(int operators) {
  int before = 0;
  engine::check(mxnet.bulk(operators, &before) == 0);
  return before;
}

}  // namespace ngraph_mxnet
