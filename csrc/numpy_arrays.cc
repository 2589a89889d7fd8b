#include "numpy_arrays.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

std::string found(const py::array& array) {
  const std::vector<std::int64_t> shape(array.shape(), array.shape() + array.ndim());
  return py::str(array.dtype()).cast<std::string>() + shape_str(shape);
}

bool has_type(const py::array& array, const TensorSpec& spec) {
  const py::dtype dtype = array.dtype();
  return dtype.kind() == spec.element->numpy_kind &&
         static_cast<std::size_t>(dtype.itemsize()) == spec.element->size && dtype.byteorder() != '>';
}

bool has_shape(const py::array& array, const TensorSpec& spec) {
  return std::vector<std::int64_t>(array.shape(), array.shape() + array.ndim()) == spec.shape;
}

char* checked_pointer(py::handle item, const TensorSpec& spec, const std::string& what, bool writable) {
  if (!py::isinstance<py::array>(item)) {
    throw py::type_error(what + " is a " + py::str(py::type::of(item).attr("__name__")).cast<std::string>() +
                         ", expected a NumPy array");
  }
  const auto array = py::reinterpret_borrow<py::array>(item);
  const auto mismatch = [&] { return what + " is " + found(array) + ", expected " + spec.str(); };
  if (!has_type(array, spec)) throw py::type_error(mismatch());
  if (!has_shape(array, spec)) throw py::value_error(mismatch());
  if (!(array.flags() & py::array::c_style)) {
    throw py::value_error(what + " is not C-contiguous; pass numpy.ascontiguousarray of it");
  }
  if (writable && !array.writeable()) throw py::value_error(what + " is read-only, expected a writable array");
  return static_cast<char*>(const_cast<void*>(array.data()));
}

}  // namespace

py::dtype numpy_dtype(const Element& element) {
  return py::dtype(std::string(1, element.numpy_kind) + std::to_string(element.size));
}

std::vector<char*> data_pointers(const py::sequence& arrays, const std::vector<TensorSpec>& specs,
                                 const std::string& role, bool writable) {
  if (arrays.size() != specs.size()) {
    throw py::value_error("got " + std::to_string(arrays.size()) + " " + role + "s, expected " +
                          std::to_string(specs.size()));
  }
  std::vector<char*> pointers;
  pointers.reserve(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    // The caller's sequence keeps the array alive after this reference is gone.
    const py::object item = arrays[i];
    pointers.push_back(checked_pointer(item, specs[i], role + " " + std::to_string(i), writable));
  }
  return pointers;
}

py::array view(char* data, const TensorSpec& spec) {
  // With a base object, whatever it is, pybind11 refers to the memory instead of copying it.
  py::array array(numpy_dtype(*spec.element), spec.shape, {}, data, py::str());
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

}  // namespace ngraph_mxnet
