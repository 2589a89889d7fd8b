// Operators that a script calls around compiled calls. MXNet checks them, infers the types of their results and puts
// them on its tape as ever. What is compiled is computed in MXNet's place: no other thread has to wake up for it, and
// none of MXNet's OpenMP threads spins behind it.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/fork_safety.h"
#include "core/tensor_spec.h"
#include "mxnet/engine.h"
#include "mxnet/short_way.h"

namespace ngraph_mxnet {

// One call of MXImperativeInvokeEx that is given no outputs.
class OperatorCall {
 public:
  using Handle = engine::Handle;

  // `options`: as many keys and values.
  OperatorCall(Handle op, int inputs, Handle* in, int options, const char** keys, const char** values);

  // Makes the call; status and outputs are MXNet's. `compiles`: the outputs may be computed by a program that
  // `links::add` was given under the `operator_key`, where it is `recorded`, or under an OperatorsSeen's key. Throws
  // nothing but what has no memory.
  int invoke(bool compiles, bool recorded, int* outputs, Handle** out, const int** types);

  Handle op;
  std::vector<Handle> inputs;
  std::vector<std::pair<std::string, std::string>> attributes;

 private:
  std::shared_ptr<Link> compiled(bool recorded);
  int invoke_stock(int* outputs, Handle** out, const int** types);
  int invoke_compiled(const Link& link, int* outputs, Handle** out, const int** types);
  int finish(const Link& link, int* outputs, Handle** out, const int** types);

  std::string key_;
  std::vector<TensorSpec> specs_;  // of the inputs
  std::vector<const char*> keys_, values_;
};

// Runs MXNet's `reset_arrays`, as `Parameter.zero_grad` calls it, at once, if nothing is under way on the arrays and they
// are few. Returns false if nothing was done, as for any other operator.
bool reset_now(engine::Handle op, const std::vector<engine::Handle>& arrays);

// Operators that were called off the tape so often that they are worth a program.
class OperatorsSeen {
 public:
  using Keyed = std::pair<std::string, LinkDescription>;

  void add(const std::string& key, const OperatorCall& call, const std::vector<TensorSpec>& inputs,
           const std::vector<engine::Handle>& outputs);
  // Those that became worth it since it was last asked: their keys, and links of one operator each, without heads.
  std::vector<Keyed> take();
  static OperatorsSeen& all();

 private:
  static constexpr int kOften = 3;
  static constexpr std::size_t kMost = 256;
  static constexpr int kMostPrograms = 64;

  ForkSafeMutex mutex_{Rank::kOperators};
  std::unordered_map<std::string, int> counts_;
  int programs_ = 0;
  std::vector<Keyed> due_;
  std::atomic<bool> is_due_{false};
};

}  // namespace ngraph_mxnet
