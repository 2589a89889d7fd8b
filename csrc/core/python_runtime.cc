#include "core/python_runtime.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "core/fork_safety.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

// Kept exception of the main thread, and that thread's number. Python runs the handlers of signals on the main thread.
// The GIL guards both variables.
PyObject* kept = nullptr;
unsigned long kept_on = 0;
// The frame of Python's that called libmxnet then.
PyObject* kept_for = nullptr;

std::atomic<int> visits{0};
std::atomic<bool> ended{false};
// The child of a fork has none of the counted threads.
[[maybe_unused]] const int forks = pthread_atfork(nullptr, nullptr, [] { visits = 0; });

py::object borrowed(PyFrameObject* frame) {
  return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(frame));
}

// True if libmxnet is still to return to the frame that called it, and a finalizer runs on top of that frame. The
// collector or a weak reference has called the finalizer. Python drops exceptions there, and the caller would get
// libmxnet's error alone.
bool within_libmxnet() {
  py::object frame = borrowed(PyEval_GetFrame());
  if (frame.ptr() == kept_for) return false;
  while (frame && frame.ptr() != kept_for) {
    PyFrameObject* caller = PyFrame_GetBack(reinterpret_cast<PyFrameObject*>(frame.ptr()));
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(caller));
  }
  return static_cast<bool>(frame);
}

// Python calls it on the main thread between two instructions: the exception is raised there.
int raise_kept(void*) {
  if (kept == nullptr) return 0;
  if (within_libmxnet() && Py_AddPendingCall(raise_kept, nullptr) == 0) return 0;
  Py_CLEAR(kept_for);
  const py::object error = py::reinterpret_steal<py::object>(std::exchange(kept, nullptr));
  try {
    const py::module_ interrupts = py::module_::import("ngraph_mxnet.plugin.binding.interrupts");
    const py::object raised = interrupts.attr("to_raise")(error);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
  } catch (py::error_already_set& failure) {
    failure.restore();
  }
  return -1;
}

bool on_main_thread() {
  const py::module_ threading = py::module_::import("threading");
  return threading.attr("current_thread")().is(threading.attr("main_thread")());
}

}  // namespace

Visit::Visit() : counted_(python_is_alive() && PyGILState_GetThisThreadState() == nullptr) {
  if (counted_) ++visits;
  if (python_is_alive() && !(counted_ && ended)) return;
  if (counted_) --visits;
  throw std::runtime_error("the Python interpreter is shutting down");
}

Visit::~Visit() {
  if (counted_) --visits;
}

void end_visits() {
  ended = true;
  const GilReleased released;
  while (visits > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

bool ends_before_forks() { return PyGILState_GetThisThreadState() == nullptr; }

bool is_interrupted() { return kept != nullptr && kept_on == PyThread_get_thread_ident(); }

bool keep_interruption(const py::error_already_set& error) {
  if (error.matches(PyExc_Exception) || PyEval_GetFrame() == nullptr) return false;
  const unsigned long thread = PyThread_get_thread_ident();
  // Somebody's PyThreadState_SetAsyncExc: other threads get nothing else of this kind.
  if (!on_main_thread()) return PyThreadState_SetAsyncExc(thread, error.type().ptr()) == 1;
  if (Py_AddPendingCall(raise_kept, nullptr) != 0) return false;
  kept = error.value().inc_ref().ptr();
  kept_on = thread;
  kept_for = borrowed(PyEval_GetFrame()).release().ptr();
  return true;
}

}  // namespace ngraph_mxnet
