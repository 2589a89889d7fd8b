#include "mxnet/tape_nodes.h"

#include <mutex>

#include "mxnet/array_view.h"

namespace ngraph_mxnet {

void TapeNodes::add(const std::shared_ptr<TapeNode>& node, const std::vector<Handle>& outputs) {
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  nodes_[node->key] = node;
  for (Handle output : outputs) outputs_[output] = node->key;
  watching_.store(true, std::memory_order_relaxed);
}

void TapeNodes::add_reshaped(Handle array, Handle reshaped) {
  if (!watching_.load(std::memory_order_relaxed)) return;
  const std::shared_ptr<TapeNode> from = find(array);
  const ArrayView view(reshaped);
  // MXNet takes the arrays that it makes off the tape while nobody records.
  if (from == nullptr || !view.may_be_recorded() || view.node() == ArrayView(array).node()) return;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  reshaped_[view.node().get()] = {view.node(), from->key};
  outputs_[reshaped] = view.node().get();
}

std::shared_ptr<TapeNode> TapeNodes::find(Handle array) {
  const ArrayView view(array);
  if (!view.may_be_recorded()) return nullptr;
  std::shared_ptr<TapeNode> found;  // if it is the last to have it, that goes behind the lock
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  // A node that is gone may have left its address to another.
  const auto as_reshaped = reshaped_.find(view.node().get());
  const bool is_reshaped = as_reshaped != reshaped_.end() && !as_reshaped->second.node.expired();
  const auto at = nodes_.find(is_reshaped ? as_reshaped->second.from : view.node().get());
  if (at == nodes_.end()) return nullptr;
  found = at->second.lock();
  return found == nullptr || found->node.expired() ? nullptr : found;
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

std::vector<std::shared_ptr<TapeNode>> TapeNodes::all() {
  std::vector<std::shared_ptr<TapeNode>> found;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  for (const auto& [key, node] : nodes_) {
    found.push_back(node.lock());
    if (found.back() == nullptr || found.back()->over || found.back()->node.expired()) found.pop_back();
  }
  return found;
}

void TapeNodes::forget(const TapeNode& node) {
  std::vector<std::shared_ptr<const void>> gone;  // behind the lock: with it goes what it was made from
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  for (auto at = outputs_.begin(); at != outputs_.end();) {
    const ArrayView view(at->first);
    const auto as_reshaped = reshaped_.find(at->second);
    const bool is_reshaped = as_reshaped != reshaped_.end() && as_reshaped->second.from == node.key;
    if (!is_reshaped && at->second != node.key) {
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
}

void TapeNodes::end(Handle array) {
  if (!watching_.load(std::memory_order_relaxed)) return;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  const auto at = outputs_.find(array);
  if (at == outputs_.end()) return;
  reshaped_.erase(at->second);
  outputs_.erase(at);
  watching_.store(!outputs_.empty(), std::memory_order_relaxed);
}

}  // namespace ngraph_mxnet
