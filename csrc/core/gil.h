// The GIL, taken and left so that a thread which outlives Python stands still.
//
// When Python ends, CPython ends each other thread that asks for the GIL, by pthread_exit: that unwinds the stack and
// runs the destructors on it, which hold Python objects and would need the GIL themselves. A thread that meets this here
// stops for good where it is, until the process is gone: nothing of it is unwound.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace ngraph_mxnet {

// Runs `take`, which waits for the GIL, as all Python code does from time to time.
template <class Take>
auto take_gil(Take take) noexcept {
  try {
    return take();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();  // to leave the handler would end the process
  }
}

// The GIL of this thread, left while it lives.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  ~GilReleased() {
    take_gil([this] { PyEval_RestoreThread(state_); });
  }
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

// The GIL, held while it lives, on any thread. Python must be alive.
class GilHeld {
 public:
  GilHeld() : state_(take_gil([] { return PyGILState_Ensure(); })) {}
  ~GilHeld() {
    while (!PyGILState_Check()) pause();  // Python has ended this thread, whose stack is unwound
    PyGILState_Release(state_);
  }
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace ngraph_mxnet
