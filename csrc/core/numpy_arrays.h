// NumPy arrays at the border: checks and views.
#pragma once

#include <string>
#include <vector>

#include <pybind11/numpy.h>

#include "core/executor.h"

namespace ngraph_mxnet {

pybind11::dtype numpy_dtype(const Element& element);

// Checks that `arrays` are C-contiguous arrays of the types `specs`, and returns where their data is.
// Raises TypeError or ValueError naming the array, what was found and what is expected.
std::vector<char*> data_pointers(const pybind11::sequence& arrays, const std::vector<TensorSpec>& specs,
                                 const std::string& role, bool writable);

// The inputs and outputs of a call of the graph, looked at in this way. Nobody counts the versions of NumPy arrays.
struct CallArguments {
  CallArguments(const CompiledGraph& graph, const pybind11::sequence& in, const pybind11::sequence& out);

  std::vector<InputTensor> inputs;
  std::vector<char*> outputs;
};
std::vector<InputTensor> unversioned(const std::vector<char*>& pointers);

// True if the arguments of a call fit `specs` as they are: NumPy's own class, C-contiguous and aligned. Then `pointers`
// gets the addresses of their data. The function makes no object, and gives no reason for false.
bool fitting_pointers(const pybind11::args& arrays, const std::vector<TensorSpec>& specs, std::vector<char*>* pointers);

// New arrays of these types, and where their data is.
pybind11::list new_arrays(const std::vector<TensorSpec>& specs, std::vector<char*>* pointers);

// A read-only array over memory that someone else owns.
pybind11::array view(char* data, const TensorSpec& spec);

}  // namespace ngraph_mxnet
