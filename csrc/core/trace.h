// Spans of kernels and whole calls, while they are asked for: each thread keeps the last of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ngraph_mxnet::trace {

// Description of a span. `operations` (floating point) and `bytes` are those of all `tasks`.
struct Label {
  std::string name;
  std::string category;
  std::string origin;
  double operations;
  double bytes;
  std::int64_t tasks;
};

// Times are the steady clock's, in nanoseconds. `call` numbers the traced calls of the process.
struct Event {
  std::int64_t begin, end;
  std::int64_t tasks;
  std::uint64_t call;
  std::uint32_t label;
  std::int32_t thread;  // the operating system's number
};

struct Contents {
  std::vector<Label> labels;
  std::vector<Event> events;
  std::uint64_t dropped;  // events that made room for later ones
};

namespace detail {
extern std::atomic<bool> on;
}

inline bool enabled() { return detail::on.load(std::memory_order_relaxed); }

// Forgets what was recorded; from now on each thread keeps its last `events_per_thread`, at least one.
void start(std::size_t events_per_thread);
void stop();

// Hands over what was recorded, and forgets it. A forked child begins with nothing recorded.
Contents take();

// The number of the first of `labels`; the others follow.
std::uint32_t add_labels(const std::vector<Label>& labels);
std::uint64_t next_call();
std::int64_t now();

// Sets the thread. An event that continues the thread's last one, in call and label, prolongs it.
void record(Event event);

}  // namespace ngraph_mxnet::trace
