#include "mxnet/tape.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "mxnet/array_view.h"
#include "mxnet/direct.h"
#include "mxnet/tape_nodes.h"

namespace ngraph_mxnet {
namespace {

using engine::Handle;

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

// The arrays of the moving statistics. MXNet has handed them over for something to be added to them: so its engine has kept
// other readers and writers out since the pass began, and would keep us out, too, by other handles. None where gradients
// by chosen variables are asked for: the caller waits for such a pass. Throws std::runtime_error.
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
  // Collects the nodes from the head on. Returns false unless they lead to nothing but variables, and `distinct` is true.
  bool find(Handle head) {
    for (Kept node = nodes().find(head); node != nullptr; node = node->before.lock()) {
      if (node->over || node->arguments > 1 || !node->variables->known || node->steps->plan().outputs != 1) return false;
      nodes_.push_back(node);
      if (node->arguments == 0) return distinct();
    }
    return false;
  }

  bool is_the_same_in_predict_mode() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const Kept& node) { return node->steps->plan().moved.empty(); });
  }

  // `given`: the head's gradient, or null. False, or an exception: nothing was written but gradients that MXNet will write
  // anew.
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
      if (!node->steps->move(node->step, asked(*node), {})) throw std::runtime_error("a moving statistic has no memory");
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

// MXNet's way calls the nodes later, on another thread: by then the script may have asked for the next update of what they
// read, or for the next batch. Once for each node: it may wait to be called when the next pass begins.
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

// MXNet first ends the threads that call nodes, then waits for its engine: a node that was not yet called would never be.
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
  return {{"MXAutogradBackwardEx", address_of(backward)},
          {"MXNDArrayFree", address_of(free_array)},
          {"MXNDArrayReshape64", address_of(reshape)},
          {"MXNotifyShutdown", address_of(shut_down)}};
}

void tape::record(const std::shared_ptr<RecordedSteps>& steps, int step, const std::shared_ptr<const Variables>& variables,
                  const std::vector<Handle>& arguments, const std::vector<Handle>& outputs) {
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
  engine::check(mxnet.record(static_cast<int>(recorded.size()), recorded.data(), static_cast<int>(out.size()), out.data(),
                             &node->list) == 0);
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
