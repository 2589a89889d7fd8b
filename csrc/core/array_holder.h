// Who holds the arrays that a graph runs on, and what was last seen in them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/content_hash.h"
#include "core/prepared_set.h"

namespace ngraph_mxnet {

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
  ArrayHolder(const ArrayHolder&) = delete;
  ArrayHolder& operator=(const ArrayHolder&) = delete;

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

}  // namespace ngraph_mxnet
