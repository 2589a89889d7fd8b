#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "core/python_runtime.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

// A name that Python looks up, interned.
PyObject* interned(const char* name) {
  PyObject* const made = PyUnicode_InternFromString(name);
  if (made == nullptr) throw py::error_already_set();
  return made;
}

// Changes with every change of the dict, and no two dicts have had the same.
std::uint64_t version_of(PyObject* dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag;
#pragma GCC diagnostic pop
}

// Returns the dict's value for the name, borrowed, or null if there is none. Throws py::error_already_set.
PyObject* entry(PyObject* dict, PyObject* name) {
  PyObject* const found = PyDict_GetItemWithError(dict, name);
  if (found == nullptr && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return found;
}

// An object's own attributes.
py::object attributes_of(PyObject* object) {
  PyObject* const found = PyObject_GenericGetDict(object, nullptr);
  if (found == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(found);
}

// Classes by what `judge` said of them. A class's tag is never another's, and it gets a new one when it, or a class
// that it is derived from, is changed in any way.
class JudgedTypes {
 public:
  explicit JudgedTypes(py::function judge) : judge_(std::move(judge)) {}

  bool accepts(PyTypeObject* type) {
    for (const auto& [tag, accepted] : known_) {
      if (tag == type->tp_version_tag && has_tag(type)) return accepted;
    }
    static PyObject* const any = interned("__call__");
    _PyType_Lookup(type, any);  // gives it a tag
    const unsigned int tag = type->tp_version_tag;
    const bool is_tagged = has_tag(type);
    const bool accepted = called(judge_, py::handle(reinterpret_cast<PyObject*>(type))).cast<bool>();
    if (!is_tagged) return accepted;
    if (known_.size() >= kMost) known_.clear();
    known_.emplace_back(tag, accepted);
    return accepted;
  }

 private:
  static constexpr std::size_t kMost = 8;

  static bool has_tag(const PyTypeObject* type) {
    return type->tp_version_tag != 0 &&
           PyType_HasFeature(const_cast<PyTypeObject*>(type), Py_TPFLAGS_VALID_VERSION_TAG);
  }

  py::function judge_;
  std::vector<std::pair<unsigned int, bool>> known_;
};

// Entries of a dict as they were, or their absence.
class Entries {
 public:
  void add(PyObject* name, py::object value) { entries_.emplace_back(name, std::move(value)); }

  bool are_in(PyObject* dict) {
    const std::uint64_t version = version_of(dict);
    if (version == seen_) return true;
    for (const auto& [name, value] : entries_) {
      if (entry(dict, name) != value.ptr()) return false;
    }
    seen_ = version;
    return true;
  }

 private:
  std::vector<std::pair<PyObject*, py::object>> entries_;  // null: it is not there
  std::uint64_t seen_ = 0;
};

py::object attribute(PyObject* object, PyObject* name) {
  PyObject* const found = PyObject_GetAttr(object, name);
  if (found == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(found);
}

// The `handle` of an NDArray.
py::object handle_of(PyObject* array) {
  static PyObject* const name = interned("handle");
  return attribute(array, name);
}

// A call's arguments and what it finds in a block, compared with an earlier call's.
class BlockLookups {
 public:
  // `arguments`: how many a call brings, each of exactly the type `array_type`; `accepts_block`, `accepts_parameter`
  // and `accepts_op` judge classes; `globals`: of Gluon's module, of which the entries `names` count; `is_numpy`:
  // whether arrays are MXNet's NumPy arrays in this thread, which they are not as long as `scope` has no `value` in it;
  // another call is the same only if that is as it is now.
  BlockLookups(const py::object& block, std::size_t arguments, py::object array_type, py::function accepts_block,
               py::function accepts_parameter, py::function accepts_op, py::dict globals,
               const std::vector<std::string>& names, py::object scope, py::function is_numpy)
      : arguments_(arguments), array_type_(std::move(array_type)), blocks_(std::move(accepts_block)),
        parameters_types_(std::move(accepts_parameter)), ops_(std::move(accepts_op)), globals_(std::move(globals)),
        scope_(std::move(scope)), is_numpy_(std::move(is_numpy)) {
    const py::object own = attributes_of(block.ptr());
    for (const char* name : {"_active", "_backend", "_callback", "_cached_op"}) {
      PyObject* const key = interned(name);
      attributes_.add(key, py::reinterpret_borrow<py::object>(entry(own.ptr(), key)));
    }
    for (const char* name : {"forward", "_call_cached_op"}) attributes_.add(interned(name), py::object());
    for (const std::string& name : names) {
      PyObject* const key = interned(name.c_str());
      gluon_.add(key, py::reinterpret_borrow<py::object>(entry(globals_.ptr(), key)));
    }
    remember_parameters(own.ptr());
    made_numpy_ = makes_numpy();
  }

  // True if Gluon would call the same cached op with the same parameter arrays, and `given` are arguments for that op.
  bool same(const py::object& block, const py::tuple& given) {
    if (given.size() != arguments_) return false;
    for (std::size_t i = 0; i < arguments_; ++i) {
      if (reinterpret_cast<PyObject*>(Py_TYPE(PyTuple_GET_ITEM(given.ptr(), i))) != array_type_.ptr()) return false;
    }
    if (!is_known_ || !blocks_.accepts(Py_TYPE(block.ptr()))) return false;
    const py::object own = attributes_of(block.ptr());
    if (!attributes_.are_in(own.ptr()) || !has_no_hooks(own.ptr()) || !has_plain_format(own.ptr())) return false;
    static PyObject* const op = interned("_cached_op");
    PyObject* const cached_op = entry(own.ptr(), op);
    if (cached_op == nullptr || !ops_.accepts(Py_TYPE(cached_op))) return false;
    return gluon_.are_in(globals_.ptr()) && has_parameters(own.ptr()) && makes_numpy() == made_numpy_;
  }

 private:
  struct Parameter {
    std::optional<std::size_t> argument;  // instead: which of the arguments it is
    py::object array, handle;
    py::object request;
    std::uint64_t seen = 0;           // the version of the parameter's dict when it was looked at
    PyObject* arrays = nullptr;       // the list in it, borrowed: it is there as long as the version is the same
  };

  bool makes_numpy() const {
    static PyObject* const own = interned("__dict__");
    static PyObject* const value = interned("value");
    const py::object found = attribute(scope_.ptr(), own);
    return (!PyDict_Check(found.ptr()) || entry(found.ptr(), value) != nullptr) && called(is_numpy_).cast<bool>();
  }

  static bool has_no_hooks(PyObject* own) {
    static PyObject* const names[] = {interned("_forward_hooks"), interned("_forward_pre_hooks")};
    for (PyObject* const name : names) {
      PyObject* const hooks = entry(own, name);
      if (hooks == nullptr || (!PyDict_CheckExact(hooks) && Py_TYPE(hooks) != &PyODict_Type)) return false;
      if (PyDict_GET_SIZE(hooks) != 0) return false;
    }
    return true;
  }

  // True if the block was built for `arguments_` plain arguments, with nothing but None behind them.
  bool has_plain_format(PyObject* own) const {
    static PyObject* const name = interned("_in_format");
    PyObject* const format = entry(own, name);
    if (format == nullptr || !PyList_CheckExact(format)) return false;
    const auto size = static_cast<std::size_t>(PyList_GET_SIZE(format));
    if (size < arguments_) return false;
    for (std::size_t i = 0; i < size; ++i) {
      PyObject* const each = PyList_GET_ITEM(format, i);
      if (!PyLong_CheckExact(each) || PyLong_AsLong(each) != (i < arguments_ ? 0 : -1)) return false;
    }
    return true;
  }

  static PyObject* parameters_in(PyObject* own) {
    static PyObject* const name = interned("_cached_op_args");
    PyObject* const found = entry(own, name);
    return found != nullptr && PyList_CheckExact(found) ? found : nullptr;
  }

  void remember_parameters(PyObject* own) {
    PyObject* const list = parameters_in(own);
    if (list == nullptr) return;
    static PyObject* const data = interned("_data");
    static PyObject* const requested = interned("_grad_req");
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      PyObject* const pair = PyList_GET_ITEM(list, i);
      if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return;
      PyObject* const found = PyTuple_GET_ITEM(pair, 1);
      Parameter& made = parameters_.emplace_back();
      if (PyTuple_GET_ITEM(pair, 0) == Py_True) {
        made.argument = py::handle(found).cast<std::size_t>();
        continue;
      }
      const py::object attributes = attributes_of(found);
      PyObject* const arrays = entry(attributes.ptr(), data);
      if (arrays == nullptr || !PyList_CheckExact(arrays) || PyList_GET_SIZE(arrays) != 1) return;
      made.array = py::reinterpret_borrow<py::object>(PyList_GET_ITEM(arrays, 0));
      made.handle = handle_of(made.array.ptr());
      made.request = py::reinterpret_borrow<py::object>(entry(attributes.ptr(), requested));
    }
    is_known_ = true;
  }

  bool has_parameters(PyObject* own) {
    PyObject* const list = parameters_in(own);
    if (list == nullptr || static_cast<std::size_t>(PyList_GET_SIZE(list)) != parameters_.size()) return false;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      PyObject* const pair = PyList_GET_ITEM(list, i);
      if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2) return false;
      if (!is_as_before(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), &parameters_[i])) return false;
    }
    return true;
  }

  bool is_as_before(PyObject* is_argument, PyObject* found, Parameter* before) {
    if (before->argument) {
      return is_argument == Py_True && PyLong_CheckExact(found) && PyLong_AsSize_t(found) == *before->argument;
    }
    if (is_argument != Py_False || !parameters_types_.accepts(Py_TYPE(found))) return false;
    const py::object attributes = attributes_of(found);
    const std::uint64_t version = version_of(attributes.ptr());
    if (version != before->seen) {
      before->arrays = arrays_in(attributes.ptr(), *before);
      if (before->arrays == nullptr) {
        before->seen = 0;
        return false;
      }
      before->seen = version;
    }
    if (PyList_GET_SIZE(before->arrays) != 1 || PyList_GET_ITEM(before->arrays, 0) != before->array.ptr()) return false;
    return handle_of(before->array.ptr()).is(before->handle);
  }

  // The list of a dense parameter's arrays, borrowed, if `data` is to give one of them.
  static PyObject* arrays_in(PyObject* attributes, const Parameter& before) {
    static PyObject* const data = interned("_data");
    static PyObject* const storage = interned("_stype");
    static PyObject* const requested = interned("_grad_req");
    static PyObject* const methods[] = {interned("data"), interned("_check_and_get")};
    for (PyObject* const method : methods) {
      if (entry(attributes, method) != nullptr) return nullptr;
    }
    PyObject* const found = entry(attributes, data);
    PyObject* const stored = entry(attributes, storage);
    if (found == nullptr || !PyList_CheckExact(found)) return nullptr;
    if (stored == nullptr || !PyUnicode_CheckExact(stored) ||
        PyUnicode_CompareWithASCIIString(stored, "default") != 0) {
      return nullptr;
    }
    return entry(attributes, requested) == before.request.ptr() ? found : nullptr;
  }

  std::size_t arguments_;
  py::object array_type_;
  JudgedTypes blocks_, parameters_types_, ops_;
  py::dict globals_;
  py::object scope_;
  py::function is_numpy_;
  Entries attributes_, gluon_;
  std::vector<Parameter> parameters_;
  bool made_numpy_ = false;
  bool is_known_ = false;  // its parameters are such that they can be compared
};

}  // namespace

void define_block_lookups(py::module_& m) {
  py::class_<BlockLookups>(m, "BlockLookups", "What Gluon finds in a hybridized block when it is called.")
      .def(py::init<const py::object&, std::size_t, py::object, py::function, py::function, py::function, py::dict,
                    const std::vector<std::string>&, py::object, py::function>(),
           py::arg("block"), py::arg("arguments"), py::arg("array_type"), py::arg("accepts_block"),
           py::arg("accepts_parameter"), py::arg("accepts_op"), py::arg("globals"), py::arg("names"),
           py::arg("scope"), py::arg("is_numpy"))
      .def("same", &BlockLookups::same, py::arg("block"), py::arg("arguments"),
           "Whether Gluon would find the same, and these are arguments of the same kind.");
}

}  // namespace ngraph_mxnet
