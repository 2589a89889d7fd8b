#include "mxnet/tape.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "mxnet/array_view.h"
#include "mxnet/direct.h"
#include "mxnet/operators.h"
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
// What `missing_links` has found for the pass that this thread is about to ask for.
thread_local std::unique_ptr<ShortWay> next_way;

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

// MXNet's answer for the whole pass, or nothing where MXNet is to go its own way. `given`: the heads' gradients, or none.
std::optional<int> go_short(const std::vector<Handle>& heads, const std::vector<Handle>& given, bool retain,
                            bool is_train) {
  if (!direct::possible() || direct::profiles()) return std::nullopt;
  std::unique_ptr<ShortWay> kept = std::move(next_way);
  if (kept == nullptr || !kept->begins_at(heads)) {
    kept = std::make_unique<ShortWay>();
    if (!kept->find(heads)) return std::nullopt;
  }
  ShortWay& way = *kept;
  if (!is_train && !way.is_the_same_in_predict_mode()) return std::nullopt;
  try {
    const engine::Unrecorded unrecorded;
    if (!way.run(given)) return std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
  try {
    const engine::Unrecorded unrecorded;
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
  const engine::Unrecorded unrecorded;
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
  const engine::Unrecorded unrecorded;
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
void add_operator(const OperatorCall& call, const std::vector<Handle>& out) {
  if (!ArrayView(out.front()).may_be_recorded()) return;
  const auto node = std::make_shared<TapeOperator>();
  node->op = call.op;
  node->attributes = call.attributes;
  for (Handle array : call.inputs) {
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
  if (ArrayView(out.front()).op() != call.op) return;
  node->node = ArrayView(out.front()).node();
  node->key = ArrayView(out.front()).node().get();
  nodes().add(node, out);
}

int invoke(Handle op, int inputs, Handle* in, int* outputs, Handle** out, int options, const char** keys,
           const char** values, const int** types) {
  bool records = false;
  if (!has_recorded || !direct::possible() || mxnet.is_recording(&records) != 0 || (!records && *outputs != 0)) {
    return mxnet.invoke_ex(op, inputs, in, outputs, out, options, keys, values, types);
  }
  try {
    if (!records && !direct::profiles() && reset_now(op, std::vector<Handle>(in, in + inputs))) return 0;
    OperatorCall call(op, inputs, in, options, keys, values);
    const bool compiles = *outputs == 0 && (!records || nodes().any()) && !direct::profiles();
    const int result = call.invoke(compiles, records, outputs, out, types);
    if (result != 0 || !records || *outputs < 1) return result;
    try {
      add_operator(call, std::vector<Handle>(*out, *out + *outputs));
    } catch (const std::exception&) {
      // The operator is not known, and so the pass through it is MXNet's.
    }
    return result;
  } catch (const std::exception& error) {
    mxnet.set_error(error.what());
    return -1;
  }
}

// MXNet puts a slice of the first axis on its tape as an operator of this name.
void add_slice(Handle array, std::int64_t begin, std::int64_t end, Handle sliced) {
  bool records = false;
  if (!has_recorded || !direct::possible() || mxnet.is_recording(&records) != 0 || !records) return;
  try {
    Handle op = nullptr;
    engine::check(mxnet.find_op("slice", &op) == 0);
    const std::string first = '(' + std::to_string(begin) + ",)", last = '(' + std::to_string(end) + ",)";
    const char *keys[] = {"begin", "end"}, *values[] = {first.c_str(), last.c_str()};
    add_operator(OperatorCall(op, 1, &array, 2, keys, values), {sliced});
  } catch (const std::exception&) {
    // It is not known, and so the pass through it is MXNet's.
  }
}

int slice(Handle array, std::uint32_t begin, std::uint32_t end, Handle* sliced) {
  const int result = mxnet.slice(array, begin, end, sliced);
  if (result == 0) add_slice(array, begin, end, *sliced);
  return result;
}

int slice_long(Handle array, std::int64_t begin, std::int64_t end, Handle* sliced) {
  const int result = mxnet.slice_long(array, begin, end, sliced);
  if (result == 0) add_slice(array, begin, end, *sliced);
  return result;
}

// As MXNet: a slice, which is then reshaped.
int row_of(Handle array, std::int64_t index, Handle* row) {
  const std::vector<std::int64_t> shape = ArrayView(array).shape();
  Handle sliced = nullptr;
  if (slice_long(array, index, index + 1, &sliced) != 0) return -1;
  const int result = reshape(sliced, static_cast<int>(shape.size()) - 1, const_cast<std::int64_t*>(shape.data()) + 1,
                             false, row);
  free_array(sliced);
  return result;
}

// True if its rows are on the tape, and were made as `row_of` makes them.
bool has_rows(Handle array) {
  bool records = false;
  return has_recorded && direct::possible() && mxnet.is_recording(&records) == 0 && records &&
         ArrayView(array).may_be_recorded() && ArrayView(array).shape().size() > 1;
}

int at(Handle array, std::uint32_t index, Handle* row) {
  return has_rows(array) ? row_of(array, index, row) : mxnet.at(array, index, row);
}

int at_long(Handle array, std::int64_t index, Handle* row) {
  return has_rows(array) ? row_of(array, index, row) : mxnet.at_long(array, index, row);
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
          {"MXNDArraySlice", address_of(slice)},
          {"MXNDArraySlice64", address_of(slice_long)},
          {"MXNDArrayAt", address_of(at)},
          {"MXNDArrayAt64", address_of(at_long)},
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
  next_way = nullptr;
  auto way = std::make_unique<ShortWay>();
  if (!way->find(heads)) return {};
  std::vector<LinkDescription> missing = way->missing();
  if (missing.empty()) next_way = std::move(way);
  return missing;
}

std::size_t tape::short_ways() { return short_count.load(); }

}  // namespace ngraph_mxnet
