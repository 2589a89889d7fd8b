// Exception that stops a call because the program is to get a signal's exception.
#pragma once

#include <stdexcept>

namespace ngraph_mxnet {

// The Python exception itself is kept, and raised when this thread is back in Python: see python_runtime.h.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ngraph_mxnet
