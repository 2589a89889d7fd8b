#include "mxnet/short_way.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
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

// Small arrays of one number that are kept: gradients of heads that nobody gives one, and of outputs that nobody reads.
class Constants {
 public:
  // `filling`: MXNet's operator. Throws std::runtime_error.
  std::shared_ptr<const Arrays> get(const char* filling, const TensorSpec& spec, engine::Device device) {
    const std::string name = filling + spec.str() + std::to_string(device.type) + ',' + std::to_string(device.id);
    {
      const std::lock_guard<ForkSafeMutex> lock(mutex_);
      const auto at = kept_.find(name);
      if (at != kept_.end()) return at->second;
    }
    const auto made = std::make_shared<Arrays>();
    engine::check(made->add_new(spec, device));
    engine::invoke(filling, {made->handles().front()}, made->handles().front());
    if (SpareArrays::is_large(spec)) return made;
    engine::check(mxnet.wait_to_read(made->handles().front()) == 0);
    std::unordered_map<std::string, std::shared_ptr<const Arrays>> gone;  // behind the lock
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    if (kept_.size() >= kMost) gone.swap(kept_);
    kept_[name] = made;
    return made;
  }
  static Constants& all() {
    static auto* const all = new Constants;
    return *all;
  }

 private:
  static constexpr std::size_t kMost = 64;  // their shapes may be as many as those of the batches

  ForkSafeMutex mutex_{Rank::kConstants};
  std::unordered_map<std::string, std::shared_ptr<const Arrays>> kept_;
};

// Operators of an array and a number that may as well be read from an array (`_NUMBERED` of plugin/training/links.py).
bool takes_number(Handle op) {
  static const std::vector<Handle> all = [] {
    std::vector<Handle> found;
    for (const char* name : {"_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar", "_div_scalar",
                             "_rdiv_scalar"}) {
      Handle op = nullptr;
      if (mxnet.find_op(name, &op) == 0) found.push_back(op);
    }
    return found;
  }();
  return std::find(all.begin(), all.end(), op) != all.end();
}

bool is_number(const std::pair<std::string, std::string>& attribute) { return attribute.first == "scalar"; }

// Links that are the same but for their operators' numbers.
class Families {
 public:
  // True if the numbers of the link have changed often. `family`: its key without numbers; `key`: with them.
  bool varies(const std::string& family, const std::string& key) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    if (latest_.size() >= kMost && latest_.count(family) == 0) latest_.clear();
    auto& [last, changes] = latest_[family];
    if (last != key) {
      last = key;
      ++changes;
    }
    return changes > kOften;
  }
  static Families& all() {
    static auto* const all = new Families;
    return *all;
  }

 private:
  static constexpr std::size_t kMost = 256;
  static constexpr int kOften = 4;

  ForkSafeMutex mutex_{Rank::kFamilies};
  std::unordered_map<std::string, std::pair<std::string, int>> latest_;
};

void put(std::string* text, const std::vector<std::int64_t>& shape) {
  for (std::int64_t size : shape) text->append(",").append(std::to_string(size));
}

void put(std::string* text, const TensorSpec& spec) {
  text->append(spec.element->name);
  put(text, spec.shape);
  text->append(";");
}

void put(std::string* text, Handle op, const std::vector<std::pair<std::string, std::string>>& attributes) {
  text->append(std::to_string(reinterpret_cast<std::uintptr_t>(op))).append("(");
  for (const auto& [name, value] : attributes) {
    text->append(name).append("=").append(std::to_string(value.size())).append(":").append(value).append(",");
  }
}

bool add_spec(Handle array, std::vector<TensorSpec>* specs) {
  const Element* const element = ArrayView(array).element();
  if (element == nullptr || !ArrayView(array).plain()) return false;
  specs->emplace_back(element->name, ArrayView(array).shape());
  return true;
}

}  // namespace

std::string LinkDescription::key() const {
  std::string text;
  for (const Operator& each : operators) {
    put(&text, each.op, each.attributes);
    for (const Input& input : each.inputs) {
      text.append(input.is_leaf ? "l" : "v").append(std::to_string(input.index));
      if (input.is_reshaped) put(&text, input.shape);
      text.append(";");
    }
    text.append(")").append(std::to_string(each.outputs));
  }
  text.append("|");
  for (const TensorSpec& value : values) put(&text, value);
  text.append("|");
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    text.append(wanted[i] ? "w" : "c");
    put(&text, leaves[i]);
  }
  for (std::size_t head : heads) text.append("|").append(std::to_string(head));
  return text;
}

std::string operator_key(Handle op, const std::vector<std::pair<std::string, std::string>>& attributes,
                         const std::vector<TensorSpec>& inputs) {
  std::string text;
  put(&text, op, attributes);
  for (const TensorSpec& input : inputs) put(&text, input);
  return text;
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
  if (std::none_of(told.operators.begin(), told.operators.end(), [](const auto& op) { return takes_number(op.op); })) {
    return true;
  }
  LinkDescription family = told;
  for (LinkDescription::Operator& op : family.operators) {
    if (!takes_number(op.op)) continue;
    op.attributes.erase(std::remove_if(op.attributes.begin(), op.attributes.end(), is_number), op.attributes.end());
  }
  return !Families::all().varies(family.key(), part.key) || lift_numbers(&part);
}

bool ShortWay::lift_numbers(Part* part) const {
  LinkDescription& told = part->description;
  for (LinkDescription::Operator& op : told.operators) {
    const auto number = std::find_if(op.attributes.begin(), op.attributes.end(), is_number);
    if (!takes_number(op.op) || number == op.attributes.end()) continue;
    const LinkDescription::Input& first = op.inputs.front();
    const TensorSpec type(first.is_leaf ? told.leaves[first.index].element->name
                                        : told.values[first.index].element->name, {1});
    if (type.element != &element_by_name("f32")) continue;
    const float value = std::strtof(number->second.c_str(), nullptr);
    if (!part->numbers.add_new(type, ArrayView(part->values.front()).device()) ||
        mxnet.copy_from_cpu(part->numbers.handles().back(), &value, 1) != 0) {
      return false;
    }
    op.attributes.erase(number);
    op.inputs.push_back({true, told.leaves.size(), {}, false});
    told.leaves.push_back(type);
    told.wanted.push_back(false);
    part->leaves.push_back(part->numbers.handles().back());
    part->origins.emplace_back();
    part->variables.push_back(nullptr);
  }
  part->key = told.key();
  return true;
}

bool ShortWay::begins_at(const std::vector<Handle>& heads) const {
  return std::equal(heads.begin(), heads.end(), heads_.begin(), heads_.end(), [](Handle head, const auto& found) {
    const ArrayView view(head);
    return view.node().get() == found.first->key() && view.output() == found.second;
  });
}

std::vector<LinkDescription> ShortWay::missing() const {
  std::vector<LinkDescription> found;
  for (const auto& [level, part] : parts_) {
    if (links::find(part.key) == nullptr) found.push_back(part.description);
  }
  return found;
}

bool ShortWay::is_the_same_in_predict_mode() const {
  return std::all_of(items_.begin(), items_.end(), [](const auto& pair) {
    return pair.second.call == nullptr || pair.second.call->steps->plan().moved.empty();
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
      head = constant("ones_like", TensorSpec(view.element()->name, view.shape()), view.device());
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

Handle ShortWay::constant(const char* filling, const TensorSpec& spec, engine::Device device) {
  constants_.push_back(Constants::all().get(filling, spec, device));
  return constants_.back()->handles().front();
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
      head = constant("zeros_like", outputs[i], ArrayView(steps.one(0)).device());
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
