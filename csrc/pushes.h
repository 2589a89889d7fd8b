// Threads take turns in handing operators to MXNet's engine.
#pragma once

#include <string>

#include "libmxnet.h"

namespace ngraph_mxnet {

// The engine queues an operator at each array that it writes to, one after the other. Two threads whose operators write to
// the same two can so end up each behind the other, and wait for ever. To MXNet every extension's operator writes to two
// resources that all threads share, the generator of random numbers and one of a few temporary spaces; its own hardly
// ever do. So the calls that hand over whole graphs are made one after the other. They return as soon as all is queued.
//
// A call may take long all the same: it makes a state, for which a region is compiled, or calls a monitor, which may do
// anything. The first gives its turn away meanwhile (see `OutOfTurn`); for the others nobody waits longer than a
// second. The naive engine runs operators in these calls and queues nothing: there all go at once.
namespace pushes {

// Finds the functions in libmxnet, which this process has loaded from `path`. Throws std::runtime_error.
void connect(const std::string& path);

// As `mxnet_writers::replacements`.
Replacements replacements();

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

}  // namespace pushes
}  // namespace ngraph_mxnet
