// Prepared weights in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/content_hash.h"

namespace ngraph_mxnet {

// Place of the files of prepared weights. With an empty prefix no files are kept.
struct CachedWeightsOption {
  std::string prefix;           // what paths begin with; it stands for all but the weights that the content depends on
  ContentHasher::Key key = {};  // secret, and the same in all processes that share the files
  // 32 bytes that only who has another such secret can make for a text: a keyed cryptographic hash. May throw.
  std::function<std::string(const std::string&)> seal;
  std::function<void()> on_save;  // after each new file; may throw
};

// A file is a page of header (what it is, its size, a seal of the rest), then the prepared buffer with room for a
// kernel's last vector. Processes map it, so they share its pages. Names and seals are keyed, so that a file that this
// user's processes did not write is not accepted. Files appear by a rename, and nobody may write to them afterwards:
// their mode says so. They may be removed or replaced while they are in use. What the disk does not do is no error: the
// weights are prepared as without a file.
class CachedWeights {
 public:
  using Buffer = std::shared_ptr<const AlignedBuffer>;

  // `bytes`: of the prepared buffer; `inputs`: which of a call's inputs are the weights; `sizes`: theirs in bytes.
  CachedWeights(CachedWeightsOption option, std::size_t bytes, std::vector<std::size_t> inputs,
              std::vector<std::size_t> sizes, int threads);

  // The hash of the weights by which files are found.
  const ContentHasher& hasher() const { return hasher_; }

  // Returns the buffer that was prepared from these inputs, mapped from its file. `hashes`: of the weights, by the
  // hasher. Without a file, returns the buffer that `prepare` makes, and writes it to a file. Removes a damaged file,
  // with a warning. Writes no file if the weights change while `prepare` runs.
  Buffer get_or_make(const std::vector<const char*>& inputs, const std::vector<Hash128>& hashes,
                     const std::function<Buffer()>& prepare) const;

 private:
  std::vector<Hash128> hashes_of(const std::vector<const char*>& inputs) const;
  std::string path(const std::vector<Hash128>& hashes) const;
  Buffer load(const std::string& path) const;
  bool save(const std::string& path, const AlignedBuffer& prepared) const;
  std::string seal_of(const std::string& path, const AlignedBuffer& prepared) const;

  CachedWeightsOption option_;
  ContentHasher hasher_;
  std::size_t bytes_;
  std::vector<std::size_t> inputs_, sizes_;
  int threads_;
};

}  // namespace ngraph_mxnet
