// Prepared weights in files, which processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aligned_buffer.h"

namespace ngraph_mxnet {

// A file is a page of header (what it is, its size, a checksum of the rest), then the prepared buffer, which is mapped
// from there: all processes that run a model on the same weights have one copy. Files appear by a rename and are never
// written to afterwards. What the disk does not do is no error: the weights are prepared as without a file.
class KeptWeights {
 public:
  // Files are named `prefix` and a digest of the weights; the prefix stands for all else that they depend on.
  KeptWeights(std::string prefix, std::size_t bytes, int threads)
      : prefix_(std::move(prefix)), bytes_(bytes), threads_(threads) {}

  // What was prepared from weights of these hashes, or null. A damaged file is removed, with a warning.
  std::shared_ptr<const AlignedBuffer> load(const std::vector<std::uint64_t>& hashes) const;

  // Whether it is kept now.
  bool save(const std::vector<std::uint64_t>& hashes, const AlignedBuffer& prepared) const;

 private:
  std::string path(const std::vector<std::uint64_t>& hashes) const;
  std::uint64_t checksum(const char* data) const;

  std::string prefix_;
  std::size_t bytes_;
  int threads_;
};

}  // namespace ngraph_mxnet
