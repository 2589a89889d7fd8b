#include "python_runtime.h"

#include <utility>

#include "fork_safety.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

// Of the main thread, on which Python runs the handlers of signals; guarded by the GIL.
PyObject* kept = nullptr;
unsigned long kept_on = 0;

// Python calls it on the main thread between two instructions: the exception is raised there.
int raise_kept(void*) {
  if (kept == nullptr) return 0;
  const py::object error = py::reinterpret_steal<py::object>(std::exchange(kept, nullptr));
  try {
    const py::module_ interrupts = py::module_::import("ngraph_mxnet.bridges.mxnet.binding.interrupts");
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
  return true;
}

}  // namespace ngraph_mxnet
