// Results that are final while the graph that makes them still runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ngraph_mxnet {

// Waits for some results by the memory that they lie in, such as the gradients of a training step, each of which another
// thread may send away while the backward pass goes on. Thread safe.
class ResultWatch {
 public:
  // Of each result where it lies, and a number in memory that rises with every write to it, also at the end of a run, which
  // may be null. Of two results at one address the first counts. As long as the watch lives, what runs a graph on these
  // addresses tells it.
  struct Result {
    const char* data;
    const std::uint64_t* writes;
  };
  explicit ResultWatch(const std::vector<Result>& results);
  ~ResultWatch();
  ResultWatch(const ResultWatch&) = delete;
  ResultWatch& operator=(const ResultWatch&) = delete;

  struct Event {
    std::size_t result;
    double time;           // seconds, as `now` in clock.h
    std::uint64_t writes;  // as they were then; 0 where nobody counts
  };

  // What was announced since the last call, oldest first; waits up to `seconds` for something.
  std::vector<Event> take(double seconds);

  // Lets a `take` that waits return.
  void wake();

 private:
  friend void announce_result(const char* data);

  std::vector<Event> events_;
  bool woken_ = false;
};

// Called by what runs a graph when nothing of the run refers any more to the result that lies there. Costs a load where
// nobody watches.
void announce_result(const char* data);

}  // namespace ngraph_mxnet
