#include "copies.h"

#include <cstring>

#include "array_view.h"
#include "engine.h"
#include "libmxnet.h"

namespace ngraph_mxnet {
namespace {

using engine::Handle;

constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // a tenth of a millisecond

struct {
  int (*is_recording)(bool*);
} mxnet;

}  // namespace

void copies::connect(const std::string& path) {
  const LibMXNet library(path);
  library.find("MXAutogradIsRecording", &mxnet.is_recording);
}

bool copies::copy_now(std::uintptr_t from, std::uintptr_t to) {
  const auto source = reinterpret_cast<Handle>(from), target = reinterpret_cast<Handle>(to);
  const ArrayView read(source), written(target);
  if (!engine::queues() || !ArrayView::usable() || !read.plain() || !written.plain()) return false;
  const std::size_t bytes = read.bytes();
  bool recording = true;
  if (mxnet.is_recording(&recording) != 0 || recording || bytes == 0 || bytes > kMostBytes) return false;
  if (!read.is_like(written) || read.variable() == written.variable()) return false;
  const auto copy = [&](const engine::Completion& completion) {
    const char* const source_data = read.data();
    char* const target_data = written.data();
    if (source_data == nullptr || target_data == nullptr) return false;
    std::memcpy(target_data, source_data, bytes);
    completion();
    return true;
  };
  return engine::run_now(copy, {source}, {target}, written.device(), "CopyCPU2CPU") == engine::Outcome::kRan;
}

bool copies::write_now(Handle array, const void* data, std::size_t elements) {
  const ArrayView written(array);
  if (!engine::queues() || !ArrayView::usable() || !written.plain()) return false;
  const std::size_t bytes = written.bytes();
  if (bytes == 0 || bytes > kMostBytes || elements != written.elements()) return false;
  const auto write = [&](const engine::Completion& completion) {
    char* const target = written.data();
    if (target == nullptr) return false;
    std::memcpy(target, data, bytes);
    completion();
    return true;
  };
  return engine::run_now(write, {}, {array}, written.device(), "SyncCopyFromCPU") == engine::Outcome::kRan;
}

}  // namespace ngraph_mxnet
