// Entering Python from MXNet's threads, and leaving it alone when it is gone.
#pragma once

#include <memory>
#include <optional>
#include <stdexcept>

#include <pybind11/pybind11.h>

namespace ngraph_mxnet {

inline bool python_is_alive() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

// Runs `body` with the GIL held; every Python exception leaves as a std::runtime_error, which may then
// travel where there is no GIL.
template <class Body>
auto with_gil(Body body) {
  if (!python_is_alive()) throw std::runtime_error("the Python interpreter is shutting down");
  const pybind11::gil_scoped_acquire gil;
  try {
    return body();
  } catch (pybind11::error_already_set& error) {
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
  std::optional<pybind11::gil_scoped_release> release_;
};

// A Python object that C++ may drop on any thread at any time. After Python's end it is leaked.
inline std::shared_ptr<pybind11::object> share(pybind11::object object) {
  return std::shared_ptr<pybind11::object>(new pybind11::object(std::move(object)),
                                           [](pybind11::object* held) {
                                             if (!python_is_alive()) return;
                                             const pybind11::gil_scoped_acquire gil;
                                             delete held;
                                           });
}

}  // namespace ngraph_mxnet
