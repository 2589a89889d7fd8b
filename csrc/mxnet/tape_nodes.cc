#include "mxnet/tape_nodes.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>

namespace ngraph_mxnet {

using engine::Handle;

void Requests::add(const TapeKey& node, std::uint32_t request) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  requests_[node.get()] = {node, request};
  if (requests_.size() < most_) return;
  for (auto at = requests_.begin(); at != requests_.end();) {
    at = at->second.first.expired() ? requests_.erase(at) : ++at;
  }
  most_ = std::max(kFew, requests_.size() * 2);
}

bool Requests::find(const TapeKey& node, std::uint32_t* request) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  const auto at = requests_.find(node.get());
  if (at == requests_.end() || at->second.first.expired()) return false;
  *request = at->second.second;
  return true;
}

Requests& Requests::all() {
  static auto* const all = new Requests;
  return *all;
}

void Variables::add(Handle array, const TensorSpec* spec) {
  const ArrayView view(array);
  Variable found{array, nullptr, kNothing};
  if (!arrays_.add_same(array)) throw std::runtime_error("MXNet copies no handle of an array");
  found.array = arrays_.handles().back();
  known_ = known_ && view.may_be_recorded() && Requests::all().find(view.node(), &found.request) &&
           mxnet.gradient(array, &found.gradient) == 0 && found.gradient != nullptr;
  if (found.gradient != nullptr) all_.push_back(found);
  if (!known_) return;
  const ArrayView gradient(found.gradient);
  known_ = spec != nullptr ? direct_runs::all_plain({found.gradient}, {*spec})
                           : gradient.plain() && gradient.is_like(view);
}

TapeNodes& TapeNodes::all() {
  static auto* const all = new TapeNodes;
  return *all;
}

void TapeNodes::add(const std::shared_ptr<TapeNode>& node, const std::vector<Handle>& outputs) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  node->sequence = ++sequence_;
  nodes_[node->key] = node;
  for (Handle output : outputs) outputs_[output] = node->key;
  watching_.store(true, std::memory_order_relaxed);
}

void TapeNodes::add(const std::shared_ptr<TapeOperator>& node, const std::vector<Handle>& outputs) {
  std::shared_ptr<TapeOperator> gone;  // behind the lock; a node that is gone may have left its address to another
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  node->sequence = ++sequence_;
  gone = std::exchange(operators_[node->key], node);
  for (Handle output : outputs) outputs_[output] = node->key;
  watching_.store(true, std::memory_order_relaxed);
}

void TapeNodes::add_reshaped(Handle array, Handle reshaped) {
  if (!watching_.load(std::memory_order_relaxed)) return;
  const Edge from = edge_of(array);
  const ArrayView view(reshaped);
  // MXNet takes the arrays that it makes off the tape while nobody records.
  if ((from.kind != Edge::kCall && from.kind != Edge::kOperator) || !view.may_be_recorded() ||
      view.node() == ArrayView(array).node()) {
    return;
  }
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  reshaped_[view.node().get()] = {view.node(), from};
  outputs_[reshaped] = view.node().get();
}

Edge TapeNodes::edge_of_locked(const ArrayView& view) {
  const void* const key = view.node().get();
  // A node that is gone may have left its address to another.
  const auto reshaped = reshaped_.find(key);
  if (reshaped != reshaped_.end() && !reshaped->second.node.expired()) return reshaped->second.from;
  Edge edge{Edge::kUnknown, view.node(), view.output()};
  const auto call = nodes_.find(key);
  const auto op = operators_.find(key);
  if (call != nodes_.end() && !call->second.expired()) edge.kind = Edge::kCall;
  if (op != operators_.end() && !op->second->node.expired()) edge.kind = Edge::kOperator;
  return edge;
}

Edge TapeNodes::edge_of(Handle array) {
  const ArrayView view(array);
  if (!view.may_be_recorded()) return {};
  Edge edge;
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    edge = edge_of_locked(view);
  }
  if (edge.kind != Edge::kUnknown || view.op() != nullptr) return edge;
  std::uint32_t request = 0;
  Handle gradient = nullptr;
  if (Requests::all().find(view.node(), &request)) {
    edge.kind = Edge::kVariable;
  } else if (mxnet.gradient(array, &gradient) == 0 && gradient == nullptr) {
    edge.kind = Edge::kConstant;  // MXNet makes variables of what its operators read while it records
  }
  if (gradient != nullptr) mxnet.free(gradient);
  return edge;
}

std::shared_ptr<TapeNode> TapeNodes::find(Handle array) {
  if (!ArrayView(array).may_be_recorded()) return nullptr;
  return call(edge_of(array));
}

std::shared_ptr<TapeNode> TapeNodes::call(const Edge& edge) {
  const TapeKey key = edge.node.lock();
  if (edge.kind != Edge::kCall || key == nullptr) return nullptr;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  const auto at = nodes_.find(key.get());
  return at == nodes_.end() ? nullptr : at->second.lock();
}

std::shared_ptr<TapeOperator> TapeNodes::op(const Edge& edge) {
  const TapeKey key = edge.node.lock();
  if (edge.kind != Edge::kOperator || key == nullptr) return nullptr;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  const auto at = operators_.find(key.get());
  return at == operators_.end() ? nullptr : at->second;
}

void TapeNodes::remove(const std::shared_ptr<TapeNode>& node) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  const auto at = nodes_.find(node->key);
  if (at != nodes_.end() && at->second.lock() == node) nodes_.erase(at);
}

bool TapeNodes::any() {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  return !nodes_.empty();
}

std::vector<std::shared_ptr<TapeNode>> TapeNodes::calls() {
  std::vector<std::shared_ptr<TapeNode>> found;
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    for (const auto& [key, node] : nodes_) found.push_back(node.lock());
  }
  // Behind the lock: this may be the last to hold one, with which arrays and steps go.
  const auto is_over = [](const auto& node) { return node == nullptr || node->over || node->node.expired(); };
  found.erase(std::remove_if(found.begin(), found.end(), is_over), found.end());
  return found;
}

void TapeNodes::forget(const void* key) {
  std::vector<TapeKey> gone;  // behind the lock: with it goes what it was made from
  std::shared_ptr<TapeOperator> dropped;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  for (auto at = outputs_.begin(); at != outputs_.end();) {
    const ArrayView view(at->first);
    const auto as_reshaped = reshaped_.find(at->second);
    const bool is_reshaped =
        as_reshaped != reshaped_.end() && as_reshaped->second.from.node.lock().get() == key;
    if (!is_reshaped && at->second != key) {
      ++at;
      continue;
    }
    if (view.node().get() == at->second) {
      gone.push_back(view.node());
      ArrayView::forget_node(at->first);
    }
    if (is_reshaped) reshaped_.erase(as_reshaped);
    at = outputs_.erase(at);
  }
  const auto op = operators_.find(key);
  if (op == operators_.end()) return;
  dropped = op->second;
  operators_.erase(op);
}

bool TapeNodes::end(Handle array) {
  if (!watching_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  const auto at = outputs_.find(array);
  if (at == outputs_.end()) return false;
  reshaped_.erase(at->second);
  outputs_.erase(at);
  watching_.store(!outputs_.empty(), std::memory_order_relaxed);
  return !operators_.empty() && ArrayView(array).node().use_count() == 1;
}

void TapeNodes::sweep() {
  std::vector<std::shared_ptr<TapeOperator>> gone;  // behind the lock
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  for (auto at = operators_.begin(); at != operators_.end();) {
    if (at->second->node.expired()) {
      gone.push_back(at->second);
      at = operators_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace ngraph_mxnet
