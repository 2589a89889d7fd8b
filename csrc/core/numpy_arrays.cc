#include "core/numpy_arrays.h"

#include <algorithm>
#include <map>
#include <string_view>

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

bool fits(PyObject* item, const TensorSpec& spec) {
  const auto& numpy = py::detail::npy_api::get();
  if (Py_TYPE(item) != numpy.PyArray_Type_) return false;
  const auto* const array = py::detail::array_proxy(item);
  const auto* const dtype = py::detail::array_descriptor_proxy(array->descr);
  constexpr int kNeeded = py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ | py::detail::npy_api::NPY_ARRAY_ALIGNED_;
  return (array->flags & kNeeded) == kNeeded && dtype->kind == spec.element->numpy_kind && dtype->byteorder != '>' &&
         static_cast<std::size_t>(py::reinterpret_borrow<py::dtype>(array->descr).itemsize()) == spec.element->size &&
         array->nd == static_cast<int>(spec.shape.size()) &&
         std::equal(spec.shape.begin(), spec.shape.end(), array->dimensions);
}

}  // namespace

bool fitting_pointers(const py::args& arrays, const std::vector<TensorSpec>& specs, std::vector<char*>* pointers) {
  if (arrays.size() != specs.size()) return false;
  pointers->reserve(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    PyObject* const item = PyTuple_GET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(i));
    if (!fits(item, specs[i])) return false;
    pointers->push_back(static_cast<char*>(py::detail::array_proxy(item)->data));
  }
  return true;
}

py::list new_arrays(const std::vector<TensorSpec>& specs, std::vector<char*>* pointers) {
  py::list arrays(specs.size());
  pointers->reserve(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    py::array array(numpy_dtype(*specs[i].element), specs[i].shape);
    pointers->push_back(static_cast<char*>(array.mutable_data()));
    PyList_SET_ITEM(arrays.ptr(), static_cast<Py_ssize_t>(i), array.release().ptr());
  }
  return arrays;
}

py::dtype numpy_dtype(const Element& element) {
  // Made once: the GIL guards them. They are never freed, as Python may be gone before this.
  static auto* const made = new std::map<std::string_view, PyObject*>;
  PyObject*& dtype = (*made)[element.name];
  if (dtype == nullptr) {
    dtype = py::dtype(std::string(1, element.numpy_kind) + std::to_string(element.size)).release().ptr();
  }
  return py::reinterpret_borrow<py::dtype>(dtype);
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

std::vector<InputTensor> unversioned(const std::vector<char*>& pointers) {
  std::vector<InputTensor> tensors;
  tensors.reserve(pointers.size());
  for (char* pointer : pointers) tensors.push_back({pointer, std::nullopt});
  return tensors;
}

CallArguments::CallArguments(const CompiledGraph& graph, const py::sequence& in, const py::sequence& out)
    : inputs(unversioned(data_pointers(in, graph.inputs(), "input", false))),
      outputs(data_pointers(out, graph.outputs(), "output", true)) {}

py::array view(char* data, const TensorSpec& spec) {
  // With a base object, whatever it is, pybind11 refers to the memory instead of copying it.
  py::array array(numpy_dtype(*spec.element), spec.shape, {}, data, py::str());
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

}  // namespace ngraph_mxnet
