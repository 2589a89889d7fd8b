// Remembers what was prepared from which weights.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "aligned_buffer.h"

namespace ngraph_mxnet {

struct InputTensor {
  char* data;
  // Changes whenever the framework writes to the tensor; none when nobody keeps count.
  std::optional<std::uint64_t> version;
};

// A bounded, least-recently-used set of prepared buffers, found by the identity of the weights
// (pointer, version and a few sampled words) or, failing that, by a hash of all their content.
// Executables whose prepare Programs are the same share one: a model compiled for several shapes keeps its
// weights once. The bound is for each of them: alike layers in several regions all find their own weights.
class PreparedSets : public std::enable_shared_from_this<PreparedSets> {
 public:
  using Buffer = std::shared_ptr<const AlignedBuffer>;

  // Those of all Executables with the same `program`, the text of a prepare Program, and the same weights.
  static std::shared_ptr<PreparedSets> shared(const std::string& program, std::vector<std::size_t> cacheable,
                                              std::vector<std::size_t> bytes, int threads);

  // `cacheable`: which inputs are weights; `bytes`: the size of each of those; `threads`: how many may hash.
  PreparedSets(std::vector<std::size_t> cacheable, std::vector<std::size_t> bytes, int threads);

  // Makes the buffer for weights of these hashes.
  using Prepare = std::function<Buffer(const std::vector<std::uint64_t>&)>;

  // The buffer for these weights; `prepare` makes it when there is none. Of several threads that need
  // the same new buffer one prepares and the others wait.
  Buffer get(const std::vector<InputTensor>& inputs, const Prepare& prepare);

 private:
  // Where the weights of a set were once found.
  struct Sighting {
    std::vector<InputTensor> tensors;
    std::vector<std::uint64_t> samples;
  };
  struct Set {
    std::vector<std::uint64_t> hashes;
    std::list<Sighting> sightings;  // latest first
    bool pending = true;
    Buffer buffer;  // null after a failure
  };
  using SetPtr = std::shared_ptr<Set>;

  std::size_t most_sets() const;
  Sighting sight(const std::vector<InputTensor>& inputs) const;
  SetPtr find_by_identity(const Sighting& seen);
  SetPtr find_by_content(const std::vector<std::uint64_t>& hashes);
  std::vector<std::optional<std::uint64_t>> known_hashes(const Sighting& seen) const;
  std::vector<std::uint64_t> all_hashes(const Sighting& seen,
                                        const std::vector<std::optional<std::uint64_t>>& known) const;
  void forget_overwritten(const Sighting& seen, const SetPtr& keep);
  void remember(const SetPtr& set, Sighting seen);
  Buffer wait_for(const SetPtr& set, std::unique_lock<std::mutex>* lock);

  std::vector<std::size_t> cacheable_;
  std::vector<std::size_t> bytes_;
  int threads_;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::list<SetPtr> sets_;  // latest first
};

}  // namespace ngraph_mxnet
