// What was prepared from which weights, and who holds the arrays that a graph runs on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/content_hash.h"
#include "core/fork_safety.h"

namespace ngraph_mxnet {

struct PreparedSet {
  std::vector<Hash128> hashes;  // of the weights
  std::size_t sightings = 0;          // in how many places holders see these weights; the holders' lock guards it
  bool pending = true;
  std::uint64_t generation = fork_generation();  // an older one's pending set has no thread that prepares it
  std::shared_ptr<const AlignedBuffer> buffer;  // null after a failure
};

class CompiledGraph;

struct InputTensor {
  char* data;
  // Rises whenever the framework writes to the tensor; none when nobody keeps count.
  std::optional<std::uint64_t> version;
};

// An executor, or a Gluon block's cached op: it keeps its arrays alive, so a pointer stands for one array, and the
// array's version tells whether it was written to. Without a holder neither is true: memory is recycled and versions
// start anew. Cases in which a tensor is not trusted even so, and is read in full at every call:
// * version 0: what MXNet makes for one call, such as a copy out of MKL-DNN's layout, has it; `hold` raises the others;
// * somebody outside MXNet can write to its memory (see `OutsideWriters`).
// Thread safe.
class ArrayHolder {
 public:
  // State of the tensors that a call finds before it reads the weights.
  struct Look {
    std::vector<bool> trusted;         // of each tensor: nobody writes to it during the call, or between calls unseen
    std::vector<std::optional<Hash128>> hashes;  // of the tensors that have not been written to since
    std::uint64_t moment;
  };

  ArrayHolder();
  ~ArrayHolder();

  // `user` stands for whoever reads the tensors, which are those of `inputs` at these places, of these sizes. What was
  // prepared from their very contents; null if they are not trusted, or were written to since.
  std::shared_ptr<PreparedSet> seen(std::uint64_t user, const std::vector<InputTensor>& inputs,
                                    const std::vector<std::size_t>& places, const std::vector<std::size_t>& bytes);

  Look look(std::uint64_t user, const std::vector<InputTensor>& tensors, const std::vector<std::size_t>& bytes);

  // After a `look`: `set` was prepared from what was found. Returns the set that was seen in these places before, if
  // no holder sees it any more: what was overwritten is of no use.
  std::shared_ptr<PreparedSet> record(std::uint64_t user, const std::vector<InputTensor>& tensors,
                                      const std::vector<std::size_t>& bytes, const Look& look,
                                      std::shared_ptr<PreparedSet> set);

  // Some of the arrays are no longer held: forgets all that was seen.
  void forget();

  // Never trust an array of this holder's: other processes share them.
  void distrust() { distrusted_.store(true); }

  // Between `enter` and `leave` this thread makes ops for the holder.
  static void enter(std::shared_ptr<ArrayHolder> holder);
  static void leave();
  // For whom this thread makes ops now, or null.
  static std::shared_ptr<ArrayHolder> current();

  // An op was made for it, which runs this.
  void made(std::shared_ptr<CompiledGraph> graph);
  // How many were, and what the last of them runs, as long as somebody else holds that; else null.
  std::size_t ops() const { return ops_.load(); }
  std::shared_ptr<CompiledGraph> latest() const;

 private:
  friend class OutsideWriters;
  struct Sighting {
    std::vector<InputTensor> tensors;  // no version: not trusted
    std::vector<std::size_t> bytes;
    std::weak_ptr<PreparedSet> set;
  };

  // Both with the holders' lock.
  bool trusts(const InputTensor& tensor, std::size_t bytes) const;
  void drop_dead_users();

  std::unordered_map<std::uint64_t, std::vector<Sighting>> sightings_;  // by user, the latest last
  std::atomic<bool> distrusted_{false};
  std::atomic<std::size_t> ops_{0};
  std::weak_ptr<CompiledGraph> latest_;
};

// Memory of MXNet's arrays that others may write to: what `from_numpy`, `from_dlpack` and `to_dlpack_for_...` share.
class OutsideWriters {
 public:
  static void add(const void* data, std::size_t bytes);
  static void remove(const void* data, std::size_t bytes);
};

// Copies into arrays that MXNet makes on the caller's thread, past its engine: they may run while an op reads.
class DirectCopies {
 public:
  // Returns what `end` is to be told: of copies under way when a process forks, the child knows nothing.
  static std::uint64_t begin();
  static void end(std::uint64_t begun);

  // Watches from now on.
  DirectCopies() : finished_(finished.load()), started_(started.load()) {}

  // True if no copy was under way at any time since this object was made.
  bool none() const { return finished_ == started_ && started.load() == started_; }

 private:
  static void forget_after_fork();

  static std::atomic<std::uint64_t> started, finished;
  std::uint64_t finished_, started_;
};

// A bounded, least-recently-used set of prepared buffers, found by what the weights' holder saw last or, failing that,
// by a hash of all their content. A buffer is made of the very content that was hashed.
// Executables whose prepare Programs are the same share one: a model compiled for several shapes keeps its
// weights once. The bound is for each of them: alike layers in several regions all find their own weights.
class PreparedSets : public std::enable_shared_from_this<PreparedSets> {
 public:
  using Buffer = std::shared_ptr<const AlignedBuffer>;
  using Hashes = std::vector<Hash128>;
  using ContentHash = std::function<Hash128(const void* data, std::size_t bytes)>;

  // Returns the PreparedSets that all Executables with the same `program` and the same weights share. `program` is the
  // text of a prepare Program, and of what tells its `hash` from others. Any thread may call `hash`.
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
