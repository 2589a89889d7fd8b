// Which arrays come from nodes of ours on autograd's tape.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/fork_safety.h"
#include "mxnet/recorded_steps.h"
#include "mxnet/variables.h"

namespace ngraph_mxnet {

// MXNet's, of its c_api.h.
struct CallbackList {
  int count;
  int (**callbacks)();
  void** contexts;
};

// Our side of a node on MXNet's tape, which has the only lasting reference to it.
struct TapeNode {
  std::shared_ptr<RecordedSteps> steps;
  int step;
  std::shared_ptr<const Variables> variables;
  std::weak_ptr<const void> node;  // MXNet's
  std::size_t arguments = 0;       // that are recorded
  std::weak_ptr<TapeNode> before;  // whose only output, or a reshaped one, is the only recorded argument
  const void* key = nullptr;       // MXNet's, too
  // It was gone back through, for the last time, or is gone: false if it was so before. Then the step may be given back.
  bool end() {
    const std::lock_guard<ForkSafeMutex> lock(copying);
    return !over.exchange(true);
  }

  std::atomic<bool> over{false};
  ForkSafeMutex copying{Rank::kTapeNode};  // by any thread that begins a pass; until it is done the step is not given back
  bool copied = false;    // what its backward half borrows has copies

  CallbackList list;
  int (*callbacks[2])();
  void* contexts[2];
};

class TapeNodes {
 public:
  using Handle = engine::Handle;

  void add(const std::shared_ptr<TapeNode>& node, const std::vector<Handle>& outputs);

  // An array that MXNet has made by reshaping another, with a node of its own: where the other comes from one of ours,
  // so does this.
  void add_reshaped(Handle array, Handle reshaped);

  // The node that the array comes from; null if that is none of ours.
  std::shared_ptr<TapeNode> find(Handle array);

  void remove(const std::shared_ptr<TapeNode>& node);

  bool any();

  // All that were not gone back through for the last time.
  std::vector<std::shared_ptr<TapeNode>> all();

  // Outputs that somebody still has come from this node no more, as after MXNet's own backward pass.
  void forget(const TapeNode& node);

  // The array is about to be freed.
  void end(Handle array);

 private:
  struct Reshaped {
    std::weak_ptr<const void> node;  // MXNet's, which keeps the other
    const void* from;                // that of ours
  };

  ForkSafeMutex mutex_{Rank::kTapeNodes};
  std::unordered_map<const void*, std::weak_ptr<TapeNode>> nodes_;
  std::unordered_map<const void*, Reshaped> reshaped_;
  std::unordered_map<Handle, const void*> outputs_;  // arrays that calls have returned, and reshaped ones: their nodes
  std::atomic<bool> watching_{false};
};

}  // namespace ngraph_mxnet
