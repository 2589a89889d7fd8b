// Threads take turns in handing graphs to MXNet's engine.
#pragma once

#include <mutex>

namespace ngraph_mxnet {

// The engine queues an operator at each array that it writes to, one after the other. Two threads whose operators write to
// the same two can so end up each behind the other, and wait for ever. To MXNet every extension's operator writes to two
// resources that all threads share, the generator of random numbers and one of a few temporary spaces; its own hardly
// ever do. So the calls that hand over whole graphs are made one after the other. They return as soon as all is queued.
//
// A call may take long all the same: it makes a state, for which a region is compiled, it runs a graph, or calls a monitor,
// which may do anything. The first two give their turn away meanwhile (see `OutOfTurn`); for the others nobody waits
// longer than a second. The naive engine runs operators in these calls and queues nothing: there all go at once.

// This thread's turn, unless it has one already: a monitor may call what takes one.
class Turn {
 public:
  Turn();
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  friend class OutOfTurn;

  void take();
  bool give_away();  // whether there was one

  // The one that this thread has taken, of those that are nested in one another.
  static Turn* outermost();

  static thread_local Turn* current;
  Turn* const outer_;
  std::timed_mutex* taken_ = nullptr;
};

// While it lives, this thread has given its turn away, if it had one.
class OutOfTurn {
 public:
  OutOfTurn();
  ~OutOfTurn();
  OutOfTurn(const OutOfTurn&) = delete;
  OutOfTurn& operator=(const OutOfTurn&) = delete;

 private:
  bool had_one_;
};

}  // namespace ngraph_mxnet
