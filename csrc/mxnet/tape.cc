#include "mxnet/tape.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "mxnet/array_view.h"
#include "mxnet/direct.h"
#include "mxnet/short_way.h"

namespace ngraph_mxnet {

namespace {

using engine::Handle;

int mark(std::uint32_t count, Handle* arrays, std::uint32_t* asked, Handle* gradients) {
  const int result = mxnet.mark(count, arrays, asked, gradients);
  for (std::uint32_t i = 0; result == 0 && i < count && direct::possible(); ++i) {
    Requests::all().add(ArrayView(arrays[i]).node(), asked[i]);
  }
  return result;
}

std::atomic<std::size_t> short_count{0};
std::atomic<bool> has_recorded{false};

TapeNodes& nodes() { return TapeNodes::all(); }

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
      if (requests[i] == kAdd) engine::invoke("elemwise_add", {all[heads + i], targets[i]}, all[heads + i]);
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

// MXNet's answer for the whole pass, or nothing where MXNet is to go its own way. `given`: the heads' gradients, or none.
std::optional<int> go_short(const std::vector<Handle>& heads, const std::vector<Handle>& given, bool retain,
                            bool is_train) {
  if (!direct::possible() || direct::profiles()) return std::nullopt;
  ShortWay way;
  if (!way.find(heads) || !(is_train || way.is_the_same_in_predict_mode())) return std::nullopt;
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
  if (!retain) way.end(heads);
  short_count.fetch_add(1, std::memory_order_relaxed);
  return 0;
}

// MXNet's way calls the nodes later, on another thread: by then the script may have asked for the next update of what
// they read, or for the next batch. Once for each node: it may wait to be called when the next pass begins.
void copy_what_is_borrowed() {
  const std::vector<Kept> all = nodes().calls();
  if (all.empty() || !direct::possible()) return;
  const Paused paused;
  for (const Kept& node : all) {
    // Another thread's pass may be at it, and waits for what the first one copies.
    const std::lock_guard<ForkSafeMutex> lock(node->copying);
    if (node->copied || node->over) continue;
    for (const auto& [source, target] : node->steps->copies(node->step)) engine::invoke("_copyto", {source}, target);
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
    engine::invoke("_copyto", {found[i]}, made->handles().back());
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
  if (variables == 0 && !create) {
    const std::vector<Handle> from(heads, heads + count);
    const auto answer = go_short(from, gradients ? std::vector<Handle>(gradients, gradients + count)
                                                 : std::vector<Handle>(), retain != 0, is_train != 0);
    if (answer) return *answer;
  }
  try {
    copy_what_is_borrowed();
  } catch (const std::exception&) {
    // MXNet's error is that of the function that finds no copies.
  }
  const int result = mxnet.backward(count, heads, gradients, variables, by, retain, create, is_train, made, types);
  nodes().sweep();
  return result;
}

int reshape(Handle array, int dimensions, std::int64_t* shape, bool reverse, Handle* reshaped) {
  const int result = mxnet.reshape(array, dimensions, shape, reverse, reshaped);
  if (result == 0) nodes().add_reshaped(array, *reshaped);
  return result;
}

int free_array(Handle array) {
  const bool is_last = nodes().end(array);
  const int result = mxnet.free(array);
  if (is_last) nodes().sweep();
  return result;
}

// Records an operator that MXNet has put on its tape. Nothing is recorded if one of its arrays is sparse, or comes from
// a node that is not known: then the pass is MXNet's.
void add_operator(Handle op, const std::vector<Handle>& in, const std::vector<Handle>& out, int options,
                  const char** keys, const char** values) {
  bool records = false;
  if (!ArrayView(out.front()).may_be_recorded() || mxnet.is_recording(&records) != 0 || !records) return;
  const auto node = std::make_shared<TapeOperator>();
  node->op = op;
  for (int i = 0; i < options; ++i) node->attributes.emplace_back(keys[i], values[i]);
  for (Handle array : in) {
    if (!ArrayView(array).plain()) return;
    node->from.push_back(nodes().edge_of(array));
    if (node->from.back().kind == Edge::kUnknown) return;
    if (node->from.back().kind == Edge::kVariable) node->leaves.add(array, nullptr);
    if (!node->inputs.add_same(array)) return;
    ArrayView::forget_node(node->inputs.handles().back());
  }
  for (Handle array : out) {
    if (!ArrayView(array).plain() || !node->outputs.add_same(array)) return;
    ArrayView::forget_node(node->outputs.handles().back());
  }
  if (ArrayView(out.front()).op() != op) return;
  node->node = ArrayView(out.front()).node();
  node->key = ArrayView(out.front()).node().get();
  nodes().add(node, out);
}

int invoke(Handle op, int inputs, Handle* in, int* outputs, Handle** out, int options, const char** keys,
           const char** values, const int** types) {
  const int result = mxnet.invoke_ex(op, inputs, in, outputs, out, options, keys, values, types);
  if (result != 0 || !has_recorded || *outputs < 1 || !direct::possible()) return result;
  try {
    add_operator(op, std::vector<Handle>(in, in + inputs), std::vector<Handle>(*out, *out + *outputs), options, keys,
                 values);
  } catch (const std::exception&) {
    // The operator is not known, and so the pass through it is MXNet's.
  }
  return result;
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
          {"MXImperativeInvokeEx", address_of(invoke)},
          {"MXNDArrayFree", address_of(free_array)},
          {"MXNDArrayReshape64", address_of(reshape)},
          {"MXNotifyShutdown", address_of(shut_down)}};
}

std::shared_ptr<const Variables> tape::variables_of(const std::vector<Handle>& arrays,
                                                    const std::vector<TensorSpec>& specs) {
  auto found = std::make_shared<Variables>();
  for (std::size_t i = 0; i < arrays.size(); ++i) found->add(arrays[i], &specs[i]);
  return found;
}

void tape::record(const std::shared_ptr<RecordedSteps>& steps, int step,
                  const std::shared_ptr<const Variables>& variables, const std::vector<Handle>& arguments,
                  const std::vector<Handle>& outputs) {
  has_recorded = true;
  nodes().sweep();  // what MXNet's engine was the last to hold has gone unseen
  auto node = std::make_shared<TapeNode>();
  node->steps = steps;
  node->step = step;
  node->variables = variables;
  std::vector<Handle> recorded, out = outputs;
  for (const Source& source : steps->plan().recorded) {
    const bool is_parameter = source.kind == Source::kParameter;
    recorded.push_back(is_parameter ? steps->parameter(source.index) : arguments.at(source.index));
    if (is_parameter) continue;
    node->arguments.push_back(nodes().edge_of(recorded.back()));
    if (node->arguments.back().kind == Edge::kVariable) node->leaves.add(recorded.back(), nullptr);
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

bool tape::is_known(Handle array) {
  if (!direct::possible()) return false;
  const Edge edge = nodes().edge_of(array);
  return edge.kind == Edge::kVariable || edge.kind == Edge::kOperator || is_ours(array);
}

bool tape::is_any_moving() {
  const std::vector<Kept> all = nodes().calls();
  return std::any_of(all.begin(), all.end(), [](const Kept& node) { return !node->steps->plan().moved.empty(); });
}

bool tape::is_any() { return nodes().any(); }

std::vector<LinkDescription> tape::missing_links(const std::vector<Handle>& heads) {
  if (!direct::possible() || direct::profiles() || !nodes().any()) return {};
  ShortWay way;
  return way.find(heads) ? way.missing() : std::vector<LinkDescription>();
}

std::size_t tape::short_ways() { return short_count.load(); }

}  // namespace ngraph_mxnet
