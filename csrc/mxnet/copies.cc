#include "mxnet/copies.h"

#include <cstring>
#include <vector>

#include "mxnet/array_view.h"
#include "mxnet/engine.h"
#include "mxnet/libmxnet.h"

namespace ngraph_mxnet {
namespace {

using engine::Handle;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // a tenth of a millisecond

// Writes all bytes of the array at once, from the address that `source` returns then. Returns false if nothing was written.
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

}  // namespace

bool copies::copy_now(std::uintptr_t from, std::uintptr_t to) {
  const auto source = reinterpret_cast<Handle>(from), target = reinterpret_cast<Handle>(to);
  const ArrayView read(source), written(target);
  if (!engine::queues() || !ArrayView::usable() || !read.plain() || !written.plain()) return false;
  bool recording = true;
  if (mxnet.is_recording(&recording) != 0 || recording) return false;
  if (!read.is_like(written) || read.variable() == written.variable()) return false;
  return write_bytes([&] { return read.data(); }, {source}, target, written, "CopyCPU2CPU");
}

bool copies::write_now(Handle array, const void* data, std::size_t elements) {
  const ArrayView written(array);
  if (!engine::queues() || !ArrayView::usable() || !written.plain() || elements != written.elements()) return false;
  return write_bytes([&] { return data; }, {}, array, written, "SyncCopyFromCPU");
}

}  // namespace ngraph_mxnet
