#include "artefact/artefact_fields.h"

#include "core/aligned_buffer.h"
#include "core/kernel_table.h"

namespace ngraph_mxnet {

Kernel named_kernel(const std::string& name) {
  const FoundKernel found = find_kernel(name);
  if (found.kernel == nullptr) fail("this library has no kernel '" + name + "': update it");
  if (!found.runs) throw CpuError("this CPU does not run the kernel '" + name + "'");
  return found.kernel;
}

Constant read_constant(Reader* reader, const Section& data, const ArtefactFile& file) {
  const std::uint64_t offset = reader->u64(), bytes = reader->u64();
  if (offset % kAlignment != 0 || offset > data.bytes || bytes > data.bytes - offset ||
      data.bytes - offset - bytes < kAlignment) {
    fail("a constant lies outside of DATA");
  }
  return {file.content(data) + offset, bytes};
}

Texts::Texts(Reader* reader) : texts_(reader->count(sizeof(std::uint32_t))) {
  for (std::string& text : texts_) text = reader->text();
}

}  // namespace ngraph_mxnet
