#include "mxnet/tape.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "core/fork_safety.h"
#include "mxnet/array_view.h"
#include "mxnet/direct.h"

namespace ngraph_mxnet {

// MXNet's, of its c_api.h.
struct CallbackList {
  int count;
  int (**callbacks)();
  void** contexts;
};

namespace {

using engine::Handle;

// The request that each gradient was attached with, by the variable's node on the tape. MXNet does not tell the
// request.
class Requests {
 public:
  void add(const std::shared_ptr<const void>& node, std::uint32_t request) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    requests_[node.get()] = {node, request};
    if (requests_.size() < most_) return;
    for (auto at = requests_.begin(); at != requests_.end();) {
      at = at->second.first.expired() ? requests_.erase(at) : ++at;
    }
    most_ = std::max(kFew, requests_.size() * 2);
  }

  // Finds the request of the variable with this node. Returns false if the request is not known.
  bool find(const std::shared_ptr<const void>& node, std::uint32_t* request) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto at = requests_.find(node.get());
    if (at == requests_.end() || at->second.first.expired()) return false;
    *request = at->second.second;
    return true;
  }

 private:
  static constexpr std::size_t kFew = 1024;

  ForkSafeMutex mutex_{Rank::kVariables};
  std::unordered_map<const void*, std::pair<std::weak_ptr<const void>, std::uint32_t>> requests_;
  std::size_t most_ = kFew;
};

// Never destroyed: threads may outlive static objects.
Requests& requests() {
  static auto* const all = new Requests;
  return *all;
}

int mark(std::uint32_t count, Handle* arrays, std::uint32_t* asked, Handle* gradients) {
  const int result = mxnet.mark(count, arrays, asked, gradients);
  for (std::uint32_t i = 0; result == 0 && i < count && direct::possible(); ++i) {
    requests().add(ArrayView(arrays[i]).node(), asked[i]);
  }
  return result;
}

// Our side of a node on MXNet's tape, which has the only lasting reference to it.
struct TapeNode {
  std::shared_ptr<RecordedSteps> steps;
  int step;
  std::shared_ptr<const Variables> variables;
  std::weak_ptr<const void> node;  // MXNet's
  std::size_t arguments = 0;       // that are recorded
  std::weak_ptr<TapeNode> before;  // whose only output, or a reshaped one, is the only recorded argument
  const void* key = nullptr;       // MXNet's, too
  // It was gone back through, for the last time, or is gone: false if it was so before. Then the step may be given
  // back.
  bool end() {
    const std::lock_guard<ForkSafeMutex> lock(copying);
    return !over.exchange(true);
  }

  std::atomic<bool> over{false};
  // Locked by any thread that begins a pass; until it is done the step is not given back.
  ForkSafeMutex copying{Rank::kTapeNode};
  bool copied = false;    // what its backward half borrows has copies

  CallbackList list;
  int (*callbacks[2])();
  void* contexts[2];
};

class TapeNodes {
 public:
  void add(const std::shared_ptr<TapeNode>& node, const std::vector<Handle>& outputs) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    nodes_[node->key] = node;
    for (Handle output : outputs) outputs_[output] = node->key;
    watching_.store(true, std::memory_order_relaxed);
  }

  // An array that MXNet has made by reshaping another, with a node of its own: where the other comes from one of ours,
  // so does this.
  void add_reshaped(Handle array, Handle reshaped) {
    if (!watching_.load(std::memory_order_relaxed)) return;
    const std::shared_ptr<TapeNode> from = find(array);
    const ArrayView view(reshaped);
    // MXNet takes the arrays that it makes off the tape while nobody records.
    if (from == nullptr || !view.may_be_recorded() || view.node() == ArrayView(array).node()) return;
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    reshaped_[view.node().get()] = {view.node(), from->key};
    outputs_[reshaped] = view.node().get();
  }

  // The node that the array comes from; null if that is none of ours.
  std::shared_ptr<TapeNode> find(Handle array) {
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

  void remove(const std::shared_ptr<TapeNode>& node) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto at = nodes_.find(node->key);
    if (at != nodes_.end() && at->second.lock() == node) nodes_.erase(at);
  }

  bool any() {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    return !nodes_.empty();
  }

  // All that were not gone back through for the last time.
  std::vector<std::shared_ptr<TapeNode>> all() {
    std::vector<std::shared_ptr<TapeNode>> found;
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    for (const auto& [key, node] : nodes_) {
      found.push_back(node.lock());
      if (found.back() == nullptr || found.back()->over || found.back()->node.expired()) found.pop_back();
    }
    return found;
  }

  // Outputs that somebody still has come from this node no more, as after MXNet's own backward pass.
  void forget(const TapeNode& node) {
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

  // The array is about to be freed.
  void end(Handle array) {
    if (!watching_.load(std::memory_order_relaxed)) return;
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    const auto at = outputs_.find(array);
    if (at == outputs_.end()) return;
    reshaped_.erase(at->second);
    outputs_.erase(at);
    watching_.store(!outputs_.empty(), std::memory_order_relaxed);
  }

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

std::atomic<std::size_t> short_count{0};
std::atomic<bool> has_recorded{false};

Handle op_of(const char* name) {
  Handle found = nullptr;
  engine::check(mxnet.find_op(name, &found) == 0);
  return found;
}

void invoke(Handle op, std::vector<Handle> in, Handle target) {
  Handle out[] = {target}, *outputs = out;
  int count = 1;
  engine::check(mxnet.invoke(op, static_cast<int>(in.size()), in.data(), &count, &outputs, 0, nullptr, nullptr) == 0);
}

void add_to(Handle target, Handle source) {
  static const Handle op = op_of("elemwise_add");
  invoke(op, {target, source}, target);
}

void copy(Handle source, Handle target) {
  static const Handle op = op_of("_copyto");
  invoke(op, {source}, target);
}

TapeNodes& nodes() {
  static auto* const all = new TapeNodes;
  return *all;
}

using Kept = std::shared_ptr<TapeNode>;

// The arrays of the moving statistics. MXNet has handed them over for something to be added to them: so its engine has
// kept other readers and writers out since the pass began, and would keep us out, too, by other handles. None where
// gradients by chosen variables are asked for: the caller waits for such a pass. Throws std::runtime_error.
std::vector<Handle> moving(const std::vector<int>& requests, const std::vector<Handle>& arrays) {
  const auto is = [](int wanted) { return [wanted](int request) { return request == wanted; }; };
  if (std::all_of(requests.begin(), requests.end(), is(kNothing))) return {};
  if (!std::all_of(requests.begin(), requests.end(), is(kAdd))) throw std::runtime_error("statistics are not added to");
  return arrays;
}

// MXNet's call of a node, on a thread of its own; the arrays are ours to free.
int called_back(int heads, int wanted, Handle* arrays, const int* requests, int is_train, void* context) {
  const Kept& node = *static_cast<Kept*>(context);
  const std::vector<Handle> all(arrays, arrays + heads + wanted);
  int done = 0;
  try {
    RecordedSteps& steps = *node->steps;
    const int gradients = static_cast<int>(steps.plan().recorded.size());
    Arrays made;
    std::vector<Handle> targets(all.begin() + heads, all.begin() + heads + gradients);
    std::vector<bool> asked;
    for (int i = 0; i < gradients; ++i) {
      asked.push_back(requests[i] != kNothing);
      if (requests[i] != kNothing && requests[i] != kAdd) continue;
      if (!steps.add_gradient(&made, i)) throw std::runtime_error("no memory for a gradient");
      targets[i] = made.handles().back();
    }
    const std::vector<Handle> given(all.begin(), all.begin() + heads);
    const std::vector<Handle> statistics =
        moving({requests + gradients, requests + wanted}, {all.begin() + heads + gradients, all.end()});
    if (node->over) {
      done = 0;
    } else if (is_train || steps.plan().moved.empty()) {
      done = steps.go_back(node->step, given, targets, true) && steps.move(node->step, asked, statistics);
    } else {
      done = steps.go_back_predicting(node->step, given, targets, statistics);
    }
    for (int i = 0; done && i < gradients; ++i) {
      if (requests[i] == kAdd) add_to(all[heads + i], targets[i]);
    }
  } catch (const std::exception&) {
    done = 0;  // MXNet's error names the function
  }
  for (Handle array : all) mxnet.free(array);
  return done;
}

// The node is gone: nobody can go back through it any more.
int gone(void* context) {
  auto* const kept = static_cast<Kept*>(context);
  const Kept node = *kept;
  delete kept;
  nodes().remove(node);
  if (node->end()) node->steps->give_back(node->step);
  return 1;
}

// A backward pass the short way.
class ShortWay {
 public:
  // Collects the nodes from the head on. Returns false unless they lead to nothing but variables, and `distinct` is
  // true.
  bool find(Handle head) {
    for (Kept node = nodes().find(head); node != nullptr; node = node->before.lock()) {
      if (node->over || node->arguments > 1 || !node->variables->known || node->steps->plan().outputs != 1) {
        return false;
      }
      nodes_.push_back(node);
      if (node->arguments == 0) return distinct();
    }
    return false;
  }

  bool is_the_same_in_predict_mode() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const Kept& node) { return node->steps->plan().moved.empty(); });
  }

  // `given`: the head's gradient, or null. False, or an exception: nothing was written but gradients that MXNet will
  // write anew.
  bool run(Handle given) {
    Handle from = given != nullptr ? given : nodes_.front()->steps->one(0);
    if (!direct_runs::all_plain({from}, {nodes_.front()->steps->forward().outputs().front()})) return false;
    for (const Kept& node : nodes_) {
      RecordedSteps& steps = *node->steps;
      const TensorSpec& output = steps.forward().outputs().front();
      if (from != given && !ArrayView(from).is(output)) {  // the next node has read it reshaped
        if (!links_.add_reshaped(from, output.shape)) return false;
        from = links_.handles().back();
      }
      const auto& recorded = steps.plan().recorded;
      std::vector<Handle> targets;
      Handle next = nullptr;
      std::size_t variable = 0;
      for (std::size_t i = 0; i < recorded.size(); ++i) {
        const bool is_parameter = recorded[i].kind == Source::kParameter;
        const std::uint32_t request = is_parameter ? node->variables->requests[variable] : kNothing;
        if (request == kNothing || request == kAdd) {
          if (!steps.add_gradient(&links_, i)) return false;
          targets.push_back(links_.handles().back());
        } else {
          targets.push_back(node->variables->gradients[variable]);
        }
        if (request == kAdd) sums_.emplace_back(node->variables->gradients[variable], targets.back());
        if (is_parameter) ++variable;
        if (!is_parameter) next = targets.back();
      }
      if (!steps.go_back(node->step, {from}, targets, false)) return false;
      from = next;
    }
    return true;
  }

  // After `run`: what may happen once only. An exception is the caller's: MXNet's way would add to the same sums again.
  void finish() {
    for (const auto& [target, source] : sums_) add_to(target, source);
    for (const Kept& node : nodes_) {
      if (!node->steps->move(node->step, asked(*node), {})) {
        throw std::runtime_error("a moving statistic has no memory");
      }
      for (std::size_t i = 0; i < node->variables->requests.size(); ++i) {
        if (node->variables->requests[i] != kNothing) mxnet.set_fresh(node->variables->arrays.handles()[i], 1);
      }
    }
  }

  // Nobody may go back there again.
  void end(Handle head) const {
    for (const Kept& node : nodes_) {
      nodes().forget(*node);
      if (node->end()) node->steps->give_back(node->step);
    }
    if (nodes().find(head) == nodes_.front()) ArrayView::forget_node(head);  // another handle of that output
  }

 private:
  // Which gradients of what is recorded are asked for.
  static std::vector<bool> asked(const TapeNode& node) {
    std::vector<bool> found;
    std::size_t variable = 0;
    for (const Source& source : node.steps->plan().recorded) {
      found.push_back(source.kind != Source::kParameter || node.variables->requests[variable++] != kNothing);
    }
    return found;
  }

  // True if there is a gradient to write, and no two gradients share memory.
  bool distinct() const {
    std::vector<const void*> all;
    for (const Kept& node : nodes_) {
      for (Handle gradient : node->variables->gradients) all.push_back(ArrayView(gradient).variable());
    }
    std::sort(all.begin(), all.end());
    return !all.empty() && std::adjacent_find(all.begin(), all.end()) == all.end();
  }

  std::vector<Kept> nodes_;
  Arrays links_;                                 // gradients that no variable wants, or that are added to one's
  std::vector<std::pair<Handle, Handle>> sums_;  // to which gradient is added what
};

// Keeps what runs meanwhile off the tape.
class Paused {
 public:
  Paused() { engine::check(mxnet.set_recording(0, &before_) == 0); }
  ~Paused() { mxnet.set_recording(before_, &before_); }
  Paused(const Paused&) = delete;
  Paused& operator=(const Paused&) = delete;

 private:
  int before_ = 0;
};

// MXNet's answer for the whole pass, or nothing where MXNet is to go its own way.
std::optional<int> go_short(Handle head, Handle given, bool retain, bool is_train) {
  if (!direct::possible() || direct::profiles()) return std::nullopt;
  ShortWay way;
  if (!way.find(head) || !(is_train || way.is_the_same_in_predict_mode())) return std::nullopt;
  try {
    const Paused paused;
    if (!way.run(given)) return std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
  try {
    const Paused paused;
    way.finish();
  } catch (const std::exception& error) {
    mxnet.set_error(error.what());
    return -1;
  }
  if (!retain) way.end(head);
  short_count.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

// MXNet's way calls the nodes later, on another thread: by then the script may have asked for the next update of what
// they read, or for the next batch. Once for each node: it may wait to be called when the next pass begins.
void copy_what_is_borrowed() {
  const std::vector<Kept> all = nodes().all();
  if (all.empty() || !direct::possible()) return;
  const Paused paused;
  for (const Kept& node : all) {
    // Another thread's pass may be at it, and waits for what the first one copies.
    const std::lock_guard<ForkSafeMutex> lock(node->copying);
    if (node->copied || node->over) continue;
    for (const auto& [source, target] : node->steps->copies(node->step)) copy(source, target);
    node->copied = true;
  }
}

// Head gradients of our nodes that are sparse, as dense arrays, which `made` owns: nodes take no others.
std::vector<Handle> dense(std::uint32_t count, const Handle* heads, const Handle* gradients, Arrays* made) {
  std::vector<Handle> found(gradients, gradients + count);
  const Paused paused;
  for (std::uint32_t i = 0; i < count; ++i) {
    int storage = engine::kDense;
    if (found[i] == nullptr || mxnet.storage_type(found[i], &storage) != 0 || storage == engine::kDense) continue;
    const Kept node = nodes().find(heads[i]);
    const ArrayView given(found[i]), head(heads[i]);
    if (node == nullptr || given.shape() != head.shape()) continue;
    if (!made->add_new(node->steps->forward().outputs()[head.output()], head.device())) continue;
    copy(found[i], made->handles().back());
    found[i] = made->handles().back();
  }
  return found;
}

int backward(std::uint32_t count, Handle* heads, Handle* gradients, std::uint32_t variables, Handle* by, int retain,
             int create, int is_train, Handle** made, int** types) {
  Arrays copies;
  std::vector<Handle> given;
  if (gradients != nullptr && nodes().any() && direct::possible()) {
    try {
      given = dense(count, heads, gradients, &copies);
      gradients = given.data();
    } catch (const std::exception&) {
      // MXNet's error is that of the function that is given the sparse one.
    }
  }
  if (count == 1 && variables == 0 && !create) {
    const auto answer = go_short(heads[0], gradients ? gradients[0] : nullptr, retain != 0, is_train != 0);
    if (answer) return *answer;
  }
  try {
    copy_what_is_borrowed();
  } catch (const std::exception&) {
    // MXNet's error is that of the function that finds no copies.
  }
  return mxnet.backward(count, heads, gradients, variables, by, retain, create, is_train, made, types);
}

int reshape(Handle array, int dimensions, std::int64_t* shape, bool reverse, Handle* reshaped) {
  const int result = mxnet.reshape(array, dimensions, shape, reverse, reshaped);
  if (result == 0) nodes().add_reshaped(array, *reshaped);
  return result;
}

int free_array(Handle array) {
  nodes().end(array);
  return mxnet.free(array);
}

// MXNet first ends the threads that call nodes, then waits for its engine: a node that was not yet called would never
// be.
int shut_down() {
  if (has_recorded) mxnet.wait_all();
  return mxnet.shut_down();
}

template <class... Arguments>
auto to_callback(int (*function)(Arguments...)) {
  return reinterpret_cast<int (*)()>(reinterpret_cast<void*>(function));
}

}  // namespace

Replacements tape::replacements() {
  return {{"MXAutogradMarkVariables", address_of(mark)},
          {"MXAutogradBackwardEx", address_of(backward)},
          {"MXNDArrayFree", address_of(free_array)},
          {"MXNDArrayReshape64", address_of(reshape)},
          {"MXNotifyShutdown", address_of(shut_down)}};
}

std::shared_ptr<const Variables> tape::variables_of(const std::vector<Handle>& arrays,
                                                    const std::vector<TensorSpec>& specs) {
  auto found = std::make_shared<Variables>();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const ArrayView view(arrays[i]);
    std::uint32_t request = 0;
    Handle gradient = nullptr;
    found->known = found->known && view.may_be_recorded() && requests().find(view.node(), &request) &&
                   mxnet.gradient(arrays[i], &gradient) == 0 && gradient != nullptr;
    if (gradient != nullptr) found->gradients.push_back(gradient);
    found->known = found->known && direct_runs::all_plain({gradient}, {specs[i]});
    found->requests.push_back(request);
    if (!found->arrays.add_same(arrays[i])) throw std::runtime_error("MXNet copies no handle of an array");
  }
  return found;
}

void tape::record(const std::shared_ptr<RecordedSteps>& steps, int step,
                  const std::shared_ptr<const Variables>& variables, const std::vector<Handle>& arguments,
                  const std::vector<Handle>& outputs) {
  has_recorded = true;
  auto node = std::make_shared<TapeNode>();
  node->steps = steps;
  node->step = step;
  node->variables = variables;
  std::vector<Handle> recorded, out = outputs;
  for (const Source& source : steps->plan().recorded) {
    const bool is_parameter = source.kind == Source::kParameter;
    recorded.push_back(is_parameter ? steps->parameter(source.index) : arguments.at(source.index));
    if (is_parameter) continue;
    node->before = nodes().find(recorded.back());
    ++node->arguments;
  }
  const std::vector<Handle> marks = steps->marks(step);
  recorded.insert(recorded.end(), marks.begin(), marks.end());
  node->callbacks[0] = to_callback(called_back);
  node->callbacks[1] = to_callback(gone);
  node->contexts[0] = node->contexts[1] = new Kept(node);
  node->list = {2, node->callbacks, node->contexts};
  engine::check(mxnet.record(static_cast<int>(recorded.size()), recorded.data(), static_cast<int>(out.size()),
                             out.data(), &node->list) == 0);
  const ArrayView first(out.front());
  if (!first.may_be_recorded()) return;  // nobody wants a gradient: it is gone already
  node->node = first.node();
  node->key = first.node().get();
  nodes().add(node, outputs);
}

bool tape::is_ours(Handle array) {
  if (!direct::possible()) return false;
  const Kept node = nodes().find(array);
  return node != nullptr && !node->over;
}

bool tape::is_any_moving() {
  const std::vector<Kept> all = nodes().all();
  return std::any_of(all.begin(), all.end(), [](const Kept& node) { return !node->steps->plan().moved.empty(); });
}

bool tape::is_any() { return nodes().any(); }

std::size_t tape::short_ways() { return short_count.load(); }

}  // namespace ngraph_mxnet
