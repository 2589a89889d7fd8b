// Results that are final while the graph that makes them still runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ngraph_mxnet {

// Waits for some results by the memory that they lie in, such as the gradients of a training step, each of which
// another thread may send away while the backward pass goes on. Thread safe.
class ResultWatch {
 public:
  // Place of a result, and a number in memory that rises with every write to the result, also at the end of a run.
  // `writes` may be null. Of two results at one address the first counts. As long as the watch lives, whatever runs a
  // graph on these addresses tells the watch.
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

  // Returns the results that were announced since the last call, oldest first. Waits up to `seconds` if there are none
  // yet.
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
