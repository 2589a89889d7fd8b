// A backward pass that does not go MXNet's way: it pushes the backward halves of recorded calls, and the compiled
// gradients of the operators between them, to the engine there and then. It writes the variables' gradients where MXNet
// would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/prepared_sets.h"
#include "core/tensor_spec.h"
#include "mxnet/tape_nodes.h"

namespace ngraph_mxnet {

// Operators of MXNet's that hang together on the tape, as far as their gradients depend on them: a link. Values are the
// operators' results, leaves what they read from elsewhere, each once.
struct LinkDescription {
  struct Input {
    bool is_leaf;
    std::size_t index;
    std::vector<std::int64_t> shape;  // of a value that was reshaped; else empty
    bool is_reshaped;
  };
  struct Operator {
    engine::Handle op;
    std::vector<std::pair<std::string, std::string>> attributes;  // without the number that is its last input, if any
    std::vector<Input> inputs;
    std::size_t outputs;
  };

  std::vector<Operator> operators;
  std::vector<TensorSpec> values, leaves;
  std::vector<bool> wanted;         // of the leaves: a gradient of it is
  std::vector<std::size_t> heads;   // the values that get a gradient

  std::string key() const;  // the same for descriptions that are the same
};

// A string that two operators have in common if they compute the same of inputs of the same types.
std::string operator_key(engine::Handle op, const std::vector<std::pair<std::string, std::string>>& attributes,
                         const std::vector<TensorSpec>& inputs);

// A compiled link: its inputs are values, leaves and the gradients of its heads, its results the gradients of the
// wanted leaves. Or a compiled operator, under its `operator_key`: its inputs are leaves, its results the operator's.
struct Link {
  enum Kind { kValue, kLeaf, kHead };

  std::shared_ptr<CompiledGraph> graph;  // null: it can't be compiled
  std::vector<std::pair<Kind, std::size_t>> sources;
  std::shared_ptr<ArrayHolder> holder = std::make_shared<ArrayHolder>();
  SpareArrays spares;
};

namespace links {
// Throws std::invalid_argument if there are other sources than inputs.
void add(const std::string& key, std::shared_ptr<CompiledGraph> graph,
         const std::vector<std::pair<int, std::size_t>>& sources);
std::shared_ptr<Link> find(const std::string& key);
}  // namespace links

class ShortWay {
 public:
  using Handle = engine::Handle;

  // Collects the nodes from the heads on. Returns false unless a call is among them, and they lead to nothing but
  // variables with gradients that share no memory.
  bool find(const std::vector<Handle>& heads);

  // True if these are the heads that it was found from, and still come from the same nodes.
  bool begins_at(const std::vector<Handle>& heads) const;

  // Of what was found: the links that were not yet compiled, nor refused.
  std::vector<LinkDescription> missing() const;

  // Operators are, if their gradients are compiled: none draws random numbers or takes statistics.
  bool is_the_same_in_predict_mode() const;

  // `given`: the heads' gradients, or null. False, or an exception: nothing was written but gradients that MXNet will
  // write anew.
  bool run(const std::vector<Handle>& given);

  // After `run`: what may happen once only. An exception is the caller's: MXNet's way would add to the same sums again.
  void finish();

  // Nobody may go back there again.
  void end(const std::vector<Handle>& heads) const;

 private:
  // A node on the way; either a call or an operator.
  struct Item {
    std::shared_ptr<TapeNode> call;
    std::shared_ptr<TapeOperator> op;
    std::size_t level = 0;                 // rises where calls and operators take turns, from the heads on
    std::vector<Handle> gradients;         // of each output, as far as there is one
    std::vector<bool> from_outside;        // of each output: a gradient comes from a head or another level
    const std::vector<Edge>& edges() const { return call ? call->arguments : op->from; }
    const Variables& leaves() const { return call ? call->leaves : op->leaves; }
    const void* key() const { return call ? call->key : op->key; }
    std::size_t outputs() const { return call ? call->steps->plan().outputs : op->outputs.handles().size(); }
  };
  // Operators of one level.
  struct Part {
    std::vector<Item*> items;  // in the order of their recording
    LinkDescription description;
    std::vector<Handle> values, leaves;
    std::vector<Edge> origins;             // of the leaves
    std::vector<const Variable*> variables;  // of the leaves; null: it is none
    Arrays numbers;                          // leaves that hold an operator's number
    std::string key;
  };

  Item* add(const Edge& edge);
  bool describe(std::size_t level, const std::vector<Item*>& items);
  // Makes leaves of the numbers of operators, which change from pass to pass. Returns false when MXNet has failed.
  bool lift_numbers(Part* part) const;
  bool run_part(Part& part);
  bool run_call(Item& item);
  std::vector<Item*> calls_as_mxnet_orders_them();
  bool accumulate(const Edge& edge, Handle gradient);
  // An array of this type that the operator `filling` has filled. Throws std::runtime_error.
  Handle constant(const char* filling, const TensorSpec& spec, engine::Device device);
  // The array into which a gradient of the variable is to be written; null when MXNet has failed.
  Handle target_of(const Variable& variable, const TensorSpec& spec, SpareArrays* spares);

  std::map<std::uint64_t, Item, std::greater<>> items_;  // by their sequence, the last first
  std::vector<std::pair<Item*, std::uint32_t>> heads_;   // and which output
  std::map<std::size_t, Part> parts_;                    // by their level
  std::map<const void*, const Variable*> used_;          // by the gradient's memory
  std::map<const void*, bool> written_;
  Arrays made_;                                  // gradients that no variable wants, or that are added to one's
  std::vector<std::shared_ptr<const Arrays>> constants_;
  std::vector<std::pair<Handle, Handle>> sums_;  // to which gradient is added what
};

}  // namespace ngraph_mxnet
