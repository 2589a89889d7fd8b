// MXNet's engine, through its C interface, and the turns in which threads hand it graphs.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "mxnet/libmxnet.h"

namespace ngraph_mxnet {

namespace engine {

// A handle of MXNet's C interface, as in its c_api.h.
using Handle = void*;

struct Device {  // MXNet's Context
  int type = 1, id = 0;
  bool operator==(const Device& other) const { return type == other.type && id == other.id; }
};
constexpr int kCpu = 1;           // MXNet's numbers of kinds of devices
constexpr int kSharedMemory = 5;  // cpu_shared
constexpr int kDense = 0;         // its number of a kind of storage

// The callback by which a function tells that it is done, on any thread. Copies are valid until one of them is called.
class Completion {
 public:
  void operator()() const { call_(engine_, block_, nullptr); }
  // The arrays that were to be written have failed: whoever waits for them gets an MXNetError of this text.
  void fail(const std::exception& error) const;

 private:
  void (*call_)(void* engine, void* block, const void* error);
  void* engine_;
  void* block_;
};

// Throws std::runtime_error with the words of the failure unless what was done through MXNet's C interface went well.
void check(bool well);

// Called at once, as an operator of the engine's that reads and writes some arrays. It returns false if it does nothing
// with them; else it calls the completion, or leaves a copy to whoever will: so long the arrays are busy. It must not
// throw.
using Body = std::function<bool(const Completion& completion)>;

enum class Outcome { kRan, kDeclined, kBusy };

// If nothing is under way on any of the arrays, calls `body` on this thread: kRan, or kDeclined where it returned
// false. Else kBusy: an operator that does nothing stands in its place. No two of the arrays may share memory.
Outcome run_now(const Body& body, const std::vector<Handle>& read, const std::vector<Handle>& written,
                Device device = {}, const char* name = "ngraph_mxnet");

// Calls `body` behind what was pushed before on these arrays, now or later, on this thread or one of the engine's.
// Returns false when MXNet has failed.
bool run_later(Body body, const std::vector<Handle>& read, const std::vector<Handle>& written, Device device,
               const char* name);

// Pushes a write to the arrays that writes nothing: their versions rise. `behind`, which may be null, is called with
// `argument` behind all that was pushed before. Returns false when MXNet has failed.
bool touch(const std::vector<Handle>& arrays, void (*behind)(void* argument) = nullptr, void* argument = nullptr);

// Calls one of MXNet's operators without attributes and writes its result to `target`. Throws std::runtime_error.
void invoke(const char* op, std::vector<Handle> in, Handle target);

// Keeps what this thread runs meanwhile off autograd's tape. Throws std::runtime_error.
class Unrecorded {
 public:
  Unrecorded() { check(mxnet.set_recording(0, &before_) == 0); }
  ~Unrecorded() { mxnet.set_recording(before_, &before_); }
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;

 private:
  int before_ = 0;
};

// True if the engine queues what it cannot run at once. MXNet's naive engine runs everything on the caller's thread.
bool queues();

}  // namespace engine

// The engine queues an operator at each array that it writes to, one after the other. Two threads whose operators write
// to the same two can so end up each behind the other, and wait for ever. To MXNet every extension's operator writes to
// two resources that all threads share, the generator of random numbers and one of a few temporary spaces; its own
// hardly ever do. So the calls that hand over whole graphs are made one after the other. They return as soon as all is
// queued.
//
// A call may take long all the same: it makes a state, for which a region is compiled, it runs a graph, or calls a
// monitor, which may do anything. The first two give their turn away meanwhile (see `OutOfTurn`); for the others nobody
// waits longer than a second. The naive engine runs operators in these calls and queues nothing: there all go at once.

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
