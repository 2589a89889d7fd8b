// Entering Python from MXNet's threads, and leaving it alone when it is gone.
//
// When Python ends, CPython ends each other thread that asks for the GIL, by pthread_exit: that unwinds the stack and
// runs the destructors on it, which hold Python objects and would need the GIL themselves. A thread that meets this
// here stops for good where it is, until the process is gone: nothing of it is unwound.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include <cxxabi.h>
#include <pybind11/pybind11.h>
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

// The Python exception itself is kept, and raised when this thread is back in Python: see python_runtime.h.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline bool python_is_alive() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// The stay of a thread in Python, counted where Python did not start the thread, as those of MXNet's engine. The end of
// Python waits for stays that have begun; none begins after it. A thread that stood still instead (gil.h) would keep
// libmxnet's own end waiting.
class Visit {
 public:
  // Throws std::runtime_error when Python has begun to end.
  Visit();
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  bool counted_;
};

// For Python's atexit: waits, without the GIL, until no counted thread is in Python.
void end_visits();

// True if this thread has a kept exception, and so is on its way back to Python. The caller holds the GIL.
bool is_interrupted();

// Keeps a Python exception that is no failure of what ran but meant for the program, such as KeyboardInterrupt: it is
// raised as soon as this thread runs Python code again, for libmxnet has returned. False if it is none, or if no Python
// code waits for this thread. Call it with the GIL.
bool keep_interruption(const pybind11::error_already_set& error);

// Calls `function` and returns its result. The caller holds the GIL. A thread that outlives Python stands still within
// the call, so that nothing which holds Python objects is unwound. Throws pybind11::error_already_set.
template <class... Args>
pybind11::object called(pybind11::handle function, Args&&... args) {
  const pybind11::tuple given = pybind11::make_tuple(std::forward<Args>(args)...);
  PyObject* result = take_gil([&] { return PyObject_CallObject(function.ptr(), given.ptr()); });
  if (result == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::object>(result);
}

// Runs `body` with the GIL held; every Python exception leaves as a std::runtime_error, which may then
// travel where there is no GIL. Throws Interrupted at once while this thread is interrupted.
template <class Body>
auto with_gil(Body body) {
  const Visit visit;
  const GilHeld gil;
  if (is_interrupted()) throw Interrupted("interrupted");
  try {
    return body();
  } catch (pybind11::error_already_set& error) {
    if (keep_interruption(error)) throw Interrupted(error.what());
    throw std::runtime_error(error.what());
  }
}

// Releases the GIL if this thread holds it.
class WithoutGil {
 public:
  WithoutGil() {
    if (python_is_alive() && PyGILState_Check()) release_.emplace();
  }

 private:
  std::optional<GilReleased> release_;
};

// A Python object that C++ may drop on any thread at any time. After Python's end it is leaked.
inline std::shared_ptr<pybind11::object> share(pybind11::object object) {
  return std::shared_ptr<pybind11::object>(new pybind11::object(std::move(object)),
                                           [](pybind11::object* held) {
                                             try {
                                               const Visit visit;
                                               const GilHeld gil;
                                               delete held;
                                             } catch (const std::runtime_error&) {
                                             }
                                           });
}

}  // namespace ngraph_mxnet
