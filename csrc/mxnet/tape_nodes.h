// The nodes on autograd's tape that a backward pass of ours can go through: recorded calls of ours, and operators of
// MXNet's that a script called between them and the loss.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/fork_safety.h"
#include "mxnet/array_view.h"
#include "mxnet/direct_runs.h"
#include "mxnet/libmxnet.h"
#include "mxnet/recorded_steps.h"

namespace ngraph_mxnet {

// MXNet's, of its c_api.h.
struct CallbackList {
  int count;
  int (**callbacks)();
  void** contexts;
};

enum Request : std::uint32_t { kNothing = 0, kAdd = 3 };  // OpReqType of MXNet's op_attr_types.h; the others write

using TapeKey = std::shared_ptr<const void>;  // MXNet's node

// The request that each gradient was attached with, by the variable's node on the tape. MXNet does not tell the
// request.
class Requests {
 public:
  void add(const TapeKey& node, std::uint32_t request);
  // Finds the request of the variable with this node. Returns false if the request is not known.
  bool find(const TapeKey& node, std::uint32_t* request);
  static Requests& all();

 private:
  static constexpr std::size_t kFew = 1024;

  ForkSafeMutex mutex_{Rank::kVariables};
  std::unordered_map<const void*, std::pair<std::weak_ptr<const void>, std::uint32_t>> requests_;
  std::size_t most_ = kFew;
};

// A variable with a gradient attached.
struct Variable {
  engine::Handle array, gradient;
  std::uint32_t request;
};

// Variables on autograd's tape, with what was attached to them.
class Variables {
 public:
  Variables() = default;
  ~Variables() {
    for (const Variable& one : all_) mxnet.free(one.gradient);
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  // Adds an array, of which a handle is kept, so the variable's node lives as long. `spec`: of its gradient; null: as
  // the array. Throws std::runtime_error.
  void add(engine::Handle array, const TensorSpec* spec);

  // True if each array is a variable with a dense gradient of the expected type. Else going back is MXNet's.
  bool known() const { return known_; }
  // As many as arrays if they are known.
  const std::vector<Variable>& all() const { return all_; }
  const std::vector<engine::Handle>& arrays() const { return arrays_.handles(); }

 private:
  Arrays arrays_;
  std::vector<Variable> all_;
  bool known_ = true;
};

// Where an array comes from, as autograd sees it.
struct Edge {
  enum Kind { kConstant, kVariable, kCall, kOperator, kUnknown };
  Kind kind = kConstant;
  std::weak_ptr<const void> node;  // of a call, operator or variable; for a reshaped array that of the other
  std::uint32_t output = 0;
};

// Our side of a recorded call's node on MXNet's tape, which has the only lasting reference to it.
struct TapeNode {
  std::shared_ptr<RecordedSteps> steps;
  int step;
  std::shared_ptr<const Variables> variables;  // of the recorded parameters
  std::weak_ptr<const void> node;              // MXNet's
  const void* key = nullptr;                   // MXNet's, too
  std::uint64_t sequence = 0;                  // rises with each node that is recorded
  std::vector<Edge> arguments;                 // the recorded ones
  Variables leaves;                            // those of the arguments that are variables
  // It was gone back through, for the last time, or is gone: false if it was so before. Then the step may be given
  // back.
  bool end() {
    const std::lock_guard<ForkSafeMutex> lock(copying);
    return !over.exchange(true);
  }

  std::atomic<bool> over{false};
  // Locked by any thread that begins a pass; until it is done the step is not given back.
  ForkSafeMutex copying{Rank::kTapeNode};
  bool copied = false;  // what its backward half borrows has copies

  CallbackList list;
  int (*callbacks[2])();
  void* contexts[2];
};

// An operator of MXNet's that was recorded.
struct TapeOperator {
  engine::Handle op;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<Edge> from;  // of each input
  Arrays inputs, outputs;  // off the tape
  Variables leaves;        // those of the inputs that are variables, in order
  std::weak_ptr<const void> node;
  const void* key;
  std::uint64_t sequence;
};

class TapeNodes {
 public:
  // Never destroyed: threads may outlive static objects.
  static TapeNodes& all();

  // The node is recorded: its outputs come from it. Numbers it.
  void add(const std::shared_ptr<TapeNode>& node, const std::vector<engine::Handle>& outputs);
  void add(const std::shared_ptr<TapeOperator>& node, const std::vector<engine::Handle>& outputs);

  // An array that MXNet has made by reshaping another, with a node of its own: where the other comes from a node that
  // is known, so does this.
  void add_reshaped(engine::Handle array, engine::Handle reshaped);

  Edge edge_of(engine::Handle array);

  // The node that the array, or the edge, comes from; null if that is none of ours, or is gone.
  std::shared_ptr<TapeNode> find(engine::Handle array);
  std::shared_ptr<TapeNode> call(const Edge& edge);
  std::shared_ptr<TapeOperator> op(const Edge& edge);

  void remove(const std::shared_ptr<TapeNode>& node);

  bool any();
  // All calls that were not gone back through for the last time.
  std::vector<std::shared_ptr<TapeNode>> calls();

  // Arrays that somebody still has come from this node no more, as after MXNet's own backward pass.
  void forget(const void* key);

  // The array is about to be freed. Returns true if nodes of MXNet's go with it: then `sweep` is to be called.
  bool end(engine::Handle array);
  // Drops operators whose nodes are gone.
  void sweep();

 private:
  struct Reshaped {
    std::weak_ptr<const void> node;  // MXNet's, which keeps the other
    Edge from;
  };

  Edge edge_of_locked(const ArrayView& view);

  ForkSafeMutex mutex_{Rank::kTapeNodes};
  std::uint64_t sequence_ = 0;
  std::unordered_map<const void*, std::weak_ptr<TapeNode>> nodes_;
  std::unordered_map<const void*, std::shared_ptr<TapeOperator>> operators_;
  std::unordered_map<const void*, Reshaped> reshaped_;
  // Arrays that calls and operators have returned, and reshaped ones: their nodes.
  std::unordered_map<engine::Handle, const void*> outputs_;
  std::atomic<bool> watching_{false};
};

}  // namespace ngraph_mxnet
