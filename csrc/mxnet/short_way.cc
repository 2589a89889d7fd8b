#include "mxnet/short_way.h"

#include <algorithm>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <unordered_map>

#include "mxnet/engine.h"

namespace ngraph_mxnet {
namespace {

using engine::Handle;

class Links {
 public:
  void add(const std::string& key, std::shared_ptr<Link> link) {
    std::shared_ptr<Link> gone;  // behind the lock
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    gone = std::exchange(links_[key], std::move(link));
  }
  std::shared_ptr<Link> find(const std::string& key) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto at = links_.find(key);
    return at == links_.end() ? nullptr : at->second;
  }

 private:
  ForkSafeMutex mutex_{Rank::kLinks};
  std::unordered_map<std::string, std::shared_ptr<Link>> links_;
};

Links& all_links() {
  static auto* const all = new Links;  // never destroyed: threads may outlive static objects
  return *all;
}

// Arrays of ones that are kept: the gradients of heads that nobody gives one.
class Ones {
 public:
  // Null when MXNet has failed.
  Handle get(const TensorSpec& spec, engine::Device device) {
    std::ostringstream name;
    name << spec.str() << device.type << ',' << device.id;
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto [at, is_new] = places_.emplace(name.str(), arrays_.handles().size());
    if (is_new) {
      if (!arrays_.add_new(spec, device)) {
        places_.erase(at);
        return nullptr;
      }
      engine::invoke("ones_like", {arrays_.handles().back()}, arrays_.handles().back());
      mxnet.wait_to_read(arrays_.handles().back());
    }
    return arrays_.handles()[at->second];
  }
  static Ones& all() {
    static auto* const all = new Ones;
    return *all;
  }

 private:
  ForkSafeMutex mutex_{Rank::kOnes};
  Arrays arrays_;
  std::unordered_map<std::string, std::size_t> places_;
};

void put(std::ostringstream& text, const TensorSpec& spec) {
  text << spec.element->name;
  for (std::int64_t size : spec.shape) text << ',' << size;
  text << ';';
}

bool add_spec(Handle array, std::vector<TensorSpec>* specs) {
  const Element* const element = ArrayView(array).element();
  if (element == nullptr || !ArrayView(array).plain()) return false;
  specs->emplace_back(element->name, ArrayView(array).shape());
  return true;
}

}  // namespace

std::string LinkDescription::key() const {
  std::ostringstream text;
  for (const Operator& each : operators) {
    text << each.op << '(';
    for (const auto& [name, value] : each.attributes) text << name << '=' << value.size() << ':' << value << ',';
    for (const Input& input : each.inputs) {
      text << (input.is_leaf ? 'l' : 'v') << input.index;
      if (input.is_reshaped) {
        for (std::int64_t size : input.shape) text << '.' << size;
      }
      text << ',';
    }
    text << ')' << each.outputs;
  }
  text << '|';
  for (const TensorSpec& value : values) put(text, value);
  text << '|';
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    text << (wanted[i] ? 'w' : 'c');
    put(text, leaves[i]);
  }
  for (std::size_t head : heads) text << '|' << head;
  return text.str();
}

void links::add(const std::string& key, std::shared_ptr<CompiledGraph> graph,
                const std::vector<std::pair<int, std::size_t>>& sources) {
  auto link = std::make_shared<Link>();
  if (graph != nullptr && graph->inputs().size() != sources.size()) {
    throw std::invalid_argument("a link has other inputs than sources");
  }
  link->graph = std::move(graph);
  for (const auto& [kind, index] : sources) {
    if (kind < Link::kValue || kind > Link::kHead) throw std::invalid_argument("no kind of a link's source");
    link->sources.emplace_back(static_cast<Link::Kind>(kind), index);
  }
  all_links().add(key, std::move(link));
}

std::shared_ptr<Link> links::find(const std::string& key) { return all_links().find(key); }

ShortWay::Item* ShortWay::add(const Edge& edge) {
  Item item;
  item.call = TapeNodes::all().call(edge);
  item.op = TapeNodes::all().op(edge);
  if (item.call == nullptr && item.op == nullptr) return nullptr;
  if (item.call != nullptr && (item.call->over || !item.call->variables->known())) return nullptr;
  if (!item.leaves().known()) return nullptr;
  Item& found = items_.emplace(item.call ? item.call->sequence : item.op->sequence, item).first->second;
  found.gradients.resize(found.outputs());
  found.from_outside.resize(found.outputs());
  return edge.output < found.outputs() ? &found : nullptr;
}

bool ShortWay::find(const std::vector<Handle>& heads) {
  for (Handle head : heads) {
    const Edge edge = TapeNodes::all().edge_of(head);
    Item* const item = add(edge);
    if (item == nullptr || item->from_outside[edge.output]) return false;
    item->from_outside[edge.output] = true;
    heads_.emplace_back(item, edge.output);
  }
  const auto is_call = [](const auto& pair) { return pair.second.call != nullptr; };
  // What reads a node was recorded behind it, so all of a node's readers come before it here.
  std::map<std::size_t, std::vector<Item*>> levels;
  for (auto& [sequence, item] : items_) {
    if (item.op != nullptr) levels[item.level].push_back(&item);
    for (const Edge& edge : item.edges()) {
      if (edge.kind == Edge::kConstant || edge.kind == Edge::kVariable) continue;
      Item* const producer = add(edge);
      if (producer == nullptr) return false;
      producer->level =
          std::max(producer->level, item.level + ((producer->call == nullptr) != (item.call == nullptr)));
    }
  }
  for (auto& [sequence, item] : items_) {
    for (const Edge& edge : item.edges()) {
      if (edge.kind == Edge::kConstant || edge.kind == Edge::kVariable) continue;
      Item* const producer = add(edge);
      if (producer == nullptr) return false;
      if (producer->level != item.level || item.call != nullptr) producer->from_outside[edge.output] = true;
    }
  }
  for (auto& [level, items] : levels) {
    std::reverse(items.begin(), items.end());
    if (!describe(level, items)) return false;
  }
  for (auto& [sequence, item] : items_) {
    const auto use = [&](const Variable& variable) {
      if (variable.request == kNothing) return true;
      const Variable*& known = used_[ArrayView(variable.gradient).variable()];
      const bool is_new = known == nullptr;
      if (is_new) known = &variable;
      return is_new || ArrayView(known->array).node() == ArrayView(variable.array).node();
    };
    const auto all_of = [&](const Variables& variables) {
      return std::all_of(variables.all().begin(), variables.all().end(), use);
    };
    if (!all_of(item.leaves()) || (item.call != nullptr && !all_of(*item.call->variables))) return false;
  }
  return !used_.empty() && std::any_of(items_.begin(), items_.end(), is_call);
}

bool ShortWay::describe(std::size_t level, const std::vector<Item*>& items) {
  Part& part = parts_[level];
  part.items = items;
  LinkDescription& told = part.description;
  std::map<const void*, std::size_t> first;  // of an operator's values
  std::map<std::pair<const void*, std::uint32_t>, std::size_t> known;  // leaves
  for (Item* item : items) {
    LinkDescription::Operator op{item->op->op, item->op->attributes, {}, item->outputs()};
    std::size_t variable = 0;
    for (std::size_t i = 0; i < item->op->from.size(); ++i) {
      const Edge& edge = item->op->from[i];
      const Handle array = item->op->inputs.handles()[i];
      const Variable* own = edge.kind == Edge::kVariable ? &item->leaves().all().at(variable++) : nullptr;
      const TapeKey node = edge.node.lock();
      const auto inner = edge.kind == Edge::kOperator ? first.find(node.get()) : first.end();
      if (inner != first.end()) {
        const std::size_t value = inner->second + edge.output;
        const std::vector<std::int64_t> shape = ArrayView(array).shape();
        op.inputs.push_back({false, value, shape, shape != told.values[value].shape});
        continue;
      }
      const std::pair<const void*, std::uint32_t> origin{node.get(), edge.output};
      const auto at = known.find(origin);
      if (edge.kind != Edge::kConstant && at != known.end() &&
          ArrayView(part.leaves[at->second]).is_like(ArrayView(array))) {
        op.inputs.push_back({true, at->second, {}, false});
        continue;
      }
      if (!add_spec(array, &told.leaves)) return false;
      known[origin] = part.leaves.size();
      op.inputs.push_back({true, part.leaves.size(), {}, false});
      told.wanted.push_back(edge.kind != Edge::kConstant && ArrayView(array).has_gradients() &&
                            !(own != nullptr && own->request == kNothing));
      part.leaves.push_back(array);
      part.origins.push_back(edge);
      part.variables.push_back(own);
    }
    first[item->key()] = part.values.size();
    for (std::size_t i = 0; i < item->outputs(); ++i) {
      if (item->from_outside[i]) told.heads.push_back(part.values.size());
      part.values.push_back(item->op->outputs.handles()[i]);
      if (!add_spec(part.values.back(), &told.values)) return false;
    }
    told.operators.push_back(std::move(op));
  }
  part.key = told.key();
  return true;
}

std::vector<LinkDescription> ShortWay::missing() const {
  std::vector<LinkDescription> found;
  for (const auto& [level, part] : parts_) {
    if (links::find(part.key) == nullptr) found.push_back(part.description);
  }
  return found;
}

bool ShortWay::is_the_same_in_predict_mode() const {
  return parts_.empty() && std::all_of(items_.begin(), items_.end(), [](const auto& pair) {
    return pair.second.call->steps->plan().moved.empty();
  });
}

bool ShortWay::run(const std::vector<Handle>& given) {
  for (const auto& [level, part] : parts_) {
    const auto link = links::find(part.key);
    if (link == nullptr || link->graph == nullptr) return false;
  }
  for (std::size_t i = 0; i < heads_.size(); ++i) {
    const auto& [item, output] = heads_[i];
    Handle head = given.empty() ? nullptr : given[i];
    if (head == nullptr && item->call != nullptr) head = item->call->steps->one(output);
    if (head == nullptr) {
      const ArrayView view(item->op->outputs.handles()[output]);
      if (view.element() == nullptr) return false;
      head = Ones::all().get(TensorSpec(view.element()->name, view.shape()), view.device());
    }
    if (head == nullptr) return false;
    item->gradients[output] = head;
  }
  std::size_t last = 0;
  for (const auto& [sequence, item] : items_) last = std::max(last, item.level);
  for (std::size_t level = 0; level <= last; ++level) {
    const auto part = parts_.find(level);
    if (part != parts_.end() && !run_part(part->second)) return false;
    for (auto& [sequence, item] : items_) {
      if (item.call != nullptr && item.level == level && !run_call(item)) return false;
    }
  }
  return true;
}

bool ShortWay::run_part(Part& part) {
  const std::shared_ptr<Link> link = links::find(part.key);
  if (link == nullptr || link->graph == nullptr) return false;
  std::vector<Handle> heads, inputs, targets;
  for (Item* item : part.items) {
    for (std::size_t i = 0; i < item->outputs(); ++i) {
      if (!item->from_outside[i]) continue;
      if (item->gradients[i] == nullptr) return false;
      heads.push_back(item->gradients[i]);
    }
  }
  const engine::Device device = ArrayView(part.values.front()).device();
  for (std::size_t i = 0; i < link->sources.size(); ++i) {
    const auto& [kind, index] = link->sources[i];
    const auto& arrays = kind == Link::kValue ? part.values : kind == Link::kLeaf ? part.leaves : heads;
    Handle array = arrays.at(index);
    if (kind == Link::kHead && !ArrayView(array).is(link->graph->inputs()[i])) {
      if (!made_.add_reshaped(array, link->graph->inputs()[i].shape)) return false;
      array = made_.handles().back();
    }
    inputs.push_back(array);
  }
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < part.leaves.size(); ++i) {
    if (!part.description.wanted[i]) continue;
    const TensorSpec& spec = part.description.leaves[i];
    Handle target = nullptr;
    if (part.variables[i] != nullptr) {
      target = target_of(*part.variables[i], spec, &link->spares);
    } else if (link->spares.add_new(&made_, spec, device)) {
      target = made_.handles().back();
    }
    if (target == nullptr) return false;
    targets.push_back(target);
    places.push_back(i);
  }
  if (!targets.empty() && !direct_runs::run_plain(link->graph, link->holder, inputs, targets)) return false;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (part.variables[places[i]] == nullptr && !accumulate(part.origins[places[i]], targets[i])) return false;
  }
  return true;
}

Handle ShortWay::target_of(const Variable& variable, const TensorSpec& spec, SpareArrays* spares) {
  bool& is_written = written_[ArrayView(variable.gradient).variable()];
  if (variable.request != kNothing && variable.request != kAdd && !is_written) {
    is_written = true;
    return variable.gradient;
  }
  if (!spares->add_new(&made_, spec, ArrayView(variable.gradient).device())) return nullptr;
  if (variable.request != kNothing) sums_.emplace_back(variable.gradient, made_.handles().back());
  return made_.handles().back();
}

bool ShortWay::accumulate(const Edge& edge, Handle gradient) {
  Item* const item = add(edge);
  if (item == nullptr) return false;
  const std::vector<std::int64_t> shape = item->call != nullptr
                                              ? item->call->steps->forward().outputs()[edge.output].shape
                                              : ArrayView(item->op->outputs.handles()[edge.output]).shape();
  if (ArrayView(gradient).shape() != shape) {  // the reader has read it reshaped
    if (!made_.add_reshaped(gradient, shape)) return false;
    gradient = made_.handles().back();
  }
  Handle& sum = item->gradients[edge.output];
  if (sum == nullptr) {
    sum = gradient;
    return true;
  }
  add_arrays({{gradient, sum}});  // this gradient is ours alone, the sum may be a head's
  sum = gradient;
  return true;
}

bool ShortWay::run_call(Item& item) {
  RecordedSteps& steps = *item.call->steps;
  const auto& outputs = steps.forward().outputs();
  for (std::size_t i = 0; i < item.gradients.size(); ++i) {
    Handle& head = item.gradients[i];
    if (head == nullptr) {
      if (!made_.add_new(outputs[i], ArrayView(steps.one(0)).device())) return false;
      head = made_.handles().back();
      engine::invoke("zeros_like", {steps.one(i)}, head);
    } else if (!ArrayView(head).is(outputs[i])) {
      return false;
    }
  }
  const auto& recorded = steps.plan().recorded;
  std::vector<Handle> targets;
  std::vector<std::pair<const Edge*, Handle>> back;
  std::size_t parameter = 0, argument = 0, leaf = 0;
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const Variable* variable = nullptr;
    const Edge* edge = nullptr;
    if (recorded[i].kind == Source::kParameter) {
      variable = &item.call->variables->all()[parameter++];
    } else {
      edge = &item.call->arguments[argument++];
      if (edge->kind == Edge::kVariable) variable = &item.call->leaves.all().at(leaf++);
    }
    Handle target = nullptr;
    if (variable != nullptr) {
      target = target_of(*variable, steps.backward().outputs()[i], steps.spares());
    } else if (steps.add_gradient(&made_, i)) {
      target = made_.handles().back();
      if (edge->kind != Edge::kConstant) back.emplace_back(edge, target);
    }
    if (target == nullptr) return false;
    targets.push_back(target);
  }
  if (!steps.go_back(item.call->step, item.gradients, targets, false)) return false;
  return std::all_of(back.begin(), back.end(), [&](const auto& one) { return accumulate(*one.first, one.second); });
}

void ShortWay::finish() {
  add_arrays(sums_);
  for (const Item* item : calls_as_mxnet_orders_them()) {
    std::vector<bool> asked;
    std::size_t parameter = 0, argument = 0, leaf = 0;
    for (const Source& source : item->call->steps->plan().recorded) {
      const bool is_parameter = source.kind == Source::kParameter;
      const bool is_leaf = !is_parameter && item->call->arguments[argument++].kind == Edge::kVariable;
      asked.push_back(is_parameter ? item->call->variables->all()[parameter++].request != kNothing
                                   : !is_leaf || item->call->leaves.all()[leaf++].request != kNothing);
    }
    if (!item->call->steps->move(item->call->step, asked, {})) {
      throw std::runtime_error("a moving statistic has no memory");
    }
  }
  for (const auto& [memory, variable] : used_) mxnet.set_fresh(variable->array, 1);
}

// MXNet visits what a node reads before the node, in the order of its inputs, and goes back the other way round.
std::vector<ShortWay::Item*> ShortWay::calls_as_mxnet_orders_them() {
  std::vector<Item*> found;
  std::map<Item*, std::size_t> next;  // which edge of a node that was met is the next
  std::vector<Item*> way;
  const auto meet = [&](Item* item) {
    if (item != nullptr && next.emplace(item, 0).second) way.push_back(item);
  };
  for (const auto& [head, output] : heads_) {
    meet(head);
    while (!way.empty()) {
      Item* const item = way.back();
      std::size_t& edge = next[item];
      if (edge < item->edges().size()) {
        const Edge& read = item->edges()[edge++];
        if (read.kind == Edge::kCall || read.kind == Edge::kOperator) meet(add(read));
      } else {
        way.pop_back();
        if (item->call != nullptr) found.push_back(item);
      }
    }
  }
  std::reverse(found.begin(), found.end());
  return found;
}

void ShortWay::end(const std::vector<Handle>& heads) const {
  std::vector<TapeKey> kept;  // until all have been forgotten
  for (const auto& [sequence, item] : items_) kept.push_back(item.call ? item.call->node.lock() : item.op->node.lock());
  for (const auto& [sequence, item] : items_) {
    TapeNodes::all().forget(item.key());
    if (item.call != nullptr && item.call->end()) item.call->steps->give_back(item.call->step);
  }
  for (std::size_t i = 0; i < heads.size(); ++i) {  // other handles of these outputs
    if (ArrayView(heads[i]).node().get() == heads_[i].first->key()) ArrayView::forget_node(heads[i]);
  }
}

}  // namespace ngraph_mxnet
