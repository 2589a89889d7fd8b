#include "audit/observer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <mutex>
#include <utility>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/fork_safety.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kMostTensors = std::size_t{1} << 20;  // that wait to be taken
constexpr std::size_t kMostSpare = std::size_t{1} << 17;    // for which memory is kept when they were taken

std::atomic<std::uint64_t> next_id{1};

// Never destroyed: MXNet's threads may still run while the process exits.
struct Queue {
  ForkSafeMutex mutex{Rank::kObservations};
  Observations waiting{}, spare{};  // memory that was written to before costs no page faults
};

Queue& queue() {
  static auto* const made = [] {
    pthread_atfork(nullptr, nullptr, [] { queue().waiting = {}; });  // the parent has it
    return new Queue;
  }();
  return *made;
}

// Loads the memory behind the vector into the cache, for as many more.
template <class Element>
void prefetch_end(const std::vector<Element>& of, std::size_t count) {
  constexpr std::size_t kLine = 64;
  const char* const end = reinterpret_cast<const char*>(of.data() + of.size());
  for (std::size_t at = 0; at < count * sizeof(Element); at += kLine) __builtin_prefetch(end + at, 1);
}

void put(const Observations& found) {
  Queue& to = queue();
  const std::lock_guard<ForkSafeMutex> lock(to.mutex);
  Observations& waiting = to.waiting;
  if (waiting.tensors.size() + found.tensors.size() > kMostTensors) {
    waiting.dropped += found.calls.size();
    return;
  }
  waiting.calls.insert(waiting.calls.end(), found.calls.begin(), found.calls.end());
  waiting.tensors.insert(waiting.tensors.end(), found.tensors.begin(), found.tensors.end());
  prefetch_end(waiting.calls, found.calls.size());  // for the next call, whose unlocking would wait for memory
  prefetch_end(waiting.tensors, found.tensors.size());
}

template <class Clock>
std::int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::int64_t this_thread() {
  thread_local const auto number = static_cast<std::int64_t>(syscall(SYS_gettid));
  return number;
}

// Bytes, of a line of the process's status.
std::int64_t memory(const std::string& line) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kilobytes = 0;
    if (word == line && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

std::uint64_t new_observation() { return next_id.fetch_add(1); }

Observations take_observations() {
  Queue& from = queue();
  const std::lock_guard<ForkSafeMutex> lock(from.mutex);
  return std::exchange(from.waiting, std::exchange(from.spare, {}));
}

void give_back(Observations taken) {
  if (taken.tensors.capacity() > kMostSpare || taken.calls.capacity() > kMostSpare) return;
  taken.calls.clear();
  taken.tensors.clear();
  taken.dropped = 0;
  Queue& to = queue();
  const std::lock_guard<ForkSafeMutex> lock(to.mutex);
  to.spare = std::move(taken);
}

Observer::Observer(std::uint64_t graph, std::vector<std::size_t> weights, Selection selection, Bounds bounds,
                   Explain explain, int threads)
    : graph_(graph),
      weights_(std::move(weights)),
      selection_(selection),
      bounds_(bounds),
      explain_(std::move(explain)),
      threads_(threads) {}

bool Observer::is_chosen(std::uint64_t number) const {
  return number < selection_.first || (selection_.every > 0 && number % selection_.every == 0);
}

void Observer::run(CompiledGraph* graph, const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs,
                   ArrayHolder* holder) {
  const std::uint64_t number = calls_.fetch_add(1, std::memory_order_relaxed);
  const bool stopped = stopped_.load(std::memory_order_relaxed), chosen = !stopped && is_chosen(number);
  if (stopped || (!chosen && !explain_)) return graph->run(inputs, outputs, holder);

  Observations found{};
  ObservedCall call{};
  if (chosen) {  // before it runs, for a step of training writes over what it reads
    call.weights = weights_of(*graph, inputs, holder, &found);
    call.id = new_observation();
    call.graph = graph_;
    call.number = number;
    call.thread = this_thread();
    found.tensors.reserve(found.tensors.size() + inputs.size() - weights_.size() + outputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (std::binary_search(weights_.begin(), weights_.end(), i)) continue;
      found.tensors.push_back({call.id, static_cast<std::uint32_t>(i), content_of(graph->inputs()[i], inputs[i].data)});
    }
  }
  call.begin = nanoseconds<std::chrono::system_clock>();
  const std::int64_t begin = nanoseconds<std::chrono::steady_clock>();
  graph->run(inputs, outputs, holder);
  call.seconds = nanoseconds<std::chrono::steady_clock>() - begin;
  for (ObservedCall& weights : found.calls) {
    weights.resident = memory("VmRSS:");
    weights.peak = memory("VmHWM:");
  }
  std::string error;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& spec = graph->outputs()[i];
    const bool bounded = explain_ && error.empty() && spec.element->numpy_kind == 'f';
    if (!chosen && !bounded) continue;
    TensorStatistics statistics;
    if (chosen) {
      const TensorContent content = content_of(spec, outputs[i]);
      found.tensors.push_back({call.id, static_cast<std::uint32_t>(inputs.size() + i), content});
      statistics = content.statistics;
    } else {
      statistics = statistics_of(spec, outputs[i]);
    }
    const bool outside = statistics.nans > 0 || (statistics.infinities > 0 && !bounds_.infinite) ||
                         statistics.min < bounds_.low || statistics.max > bounds_.high;
    if (bounded && outside) error = explain_(graph, inputs, i, statistics);
  }
  if (chosen) {
    found.calls.push_back(call);
    put(found);
  }
  if (!error.empty()) throw OutOfBounds(error);
}

PreparedSets& Observer::sets(const CompiledGraph& graph) {
  if (generation_.load(std::memory_order_acquire) == fork_generation()) return *sets_;
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  if (generation_.load(std::memory_order_relaxed) != fork_generation()) {
    std::vector<std::size_t> bytes;
    for (std::size_t weight : weights_) bytes.push_back(graph.inputs()[weight].bytes());
    sets_ = std::make_shared<PreparedSets>(weights_, std::move(bytes), threads_, comparable_hash);
    generation_.store(fork_generation(), std::memory_order_release);
  }
  return *sets_;
}

// They are recorded once for each content, as PreparedSets tells it.
std::uint64_t Observer::weights_of(const CompiledGraph& graph, const std::vector<InputTensor>& inputs,
                                   ArrayHolder* holder, Observations* found) {
  if (weights_.empty()) return 0;
  const auto record = [&](const std::vector<InputTensor>& fixed, const PreparedSets::Hashes& hashes) {
    ObservedCall weights{};
    weights.id = new_observation();
    weights.graph = graph_;
    weights.begin = nanoseconds<std::chrono::system_clock>();
    weights.thread = this_thread();
    weights.are_weights = 1;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const std::size_t at = weights_[i];
      found->tensors.push_back({weights.id, static_cast<std::uint32_t>(at),
                                {statistics_of(graph.inputs()[at], fixed[at].data), hashes[i]}});
    }
    found->calls.push_back(weights);
    auto id = std::make_shared<AlignedBuffer>(sizeof weights.id);
    std::memcpy(id->data(), &weights.id, sizeof weights.id);
    return id;
  };
  const PreparedSets::Buffer id = sets(graph).get(inputs, holder, std::cref(record));
  std::uint64_t weights;
  std::memcpy(&weights, id->data(), sizeof weights);
  return weights;
}

}  // namespace ngraph_mxnet
