// Remembers what was prepared from which weights.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/array_holder.h"
#include "core/content_hash.h"
#include "core/fork_safety.h"
#include "core/prepared_set.h"

namespace ngraph_mxnet {

// A bounded, least-recently-used set of prepared buffers, found by what the weights' holder saw last or, failing that,
// by a hash of all their content. A buffer is made of the very content that was hashed.
// Executables whose prepare Programs are the same share one: a model compiled for several shapes keeps its
// weights once. The bound is for each of them: alike layers in several regions all find their own weights.
class PreparedSets : public std::enable_shared_from_this<PreparedSets> {
 public:
  using Buffer = std::shared_ptr<const AlignedBuffer>;
  using Hashes = std::vector<Hash128>;
  using ContentHash = Hash128 (*)(const void* data, std::size_t bytes);

  // Returns the PreparedSets that all Executables with the same `program` and the same weights share. `program` is the text
  // of a prepare Program.
  static std::shared_ptr<PreparedSets> shared(const std::string& program, std::vector<std::size_t> weight_inputs,
                                              std::vector<std::size_t> bytes, int threads,
                                              ContentHash hash = content_hash128);

  // `weight_inputs`: which inputs are weights; `bytes`: the size of each of those; `threads`: how many may hash.
  PreparedSets(std::vector<std::size_t> weight_inputs, std::vector<std::size_t> bytes, int threads,
               ContentHash hash = content_hash128);

  // Makes the buffer from these inputs, whose weights have these hashes.
  using Prepare = std::function<Buffer(const std::vector<InputTensor>& inputs, const Hashes& hashes)>;

  // The buffer for these weights; `prepare` makes it when there is none. Of several threads that need
  // the same new buffer one prepares and the others wait. `holder` may be null.
  Buffer get(const std::vector<InputTensor>& inputs, ArrayHolder* holder, const Prepare& prepare);

 private:
  using SetPtr = std::shared_ptr<PreparedSet>;

  Buffer finished(const SetPtr& set);
  std::size_t most_sets() const;
  Hashes all_hashes(const std::vector<InputTensor>& weights,
                    const std::vector<std::optional<Hash128>>& known) const;
  std::vector<AlignedBuffer> copy(const std::vector<bool>& which, std::vector<InputTensor>* weights) const;
  SetPtr find(const Hashes& hashes, std::unique_lock<ForkSafeMutex>* lock);
  SetPtr find_or_prepare(Hashes hashes, const std::vector<InputTensor>& inputs, const Prepare& prepare,
                         const DirectCopies* copies);
  void drop(const SetPtr& set);

  const std::uint64_t id_;
  std::vector<std::size_t> weight_inputs_;
  std::vector<std::size_t> bytes_;
  int threads_;
  ContentHash hash_;
  ForkSafeMutex mutex_{Rank::kPreparedSets};
  ForkSafeCondition finished_;
  std::list<SetPtr> sets_;  // latest first
};

}  // namespace ngraph_mxnet
