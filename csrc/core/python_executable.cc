#include "core/python_executable.h"

#include <cstring>

#include "core/numpy_arrays.h"
#include "core/python_runtime.h"

namespace py = pybind11;

namespace ngraph_mxnet {

PythonExecutable::PythonExecutable(py::object callable, std::vector<TensorSpec> inputs,
                                   std::vector<TensorSpec> outputs)
    : CompiledGraph(std::move(inputs), std::move(outputs)), callable_(share(std::move(callable))) {}

void PythonExecutable::run(const std::vector<InputTensor>& in, const std::vector<char*>& out, ArrayHolder*) {
  with_gil([&] {
    py::list views;
    for (std::size_t i = 0; i < in.size(); ++i) views.append(view(in[i].data, inputs()[i]));
    const py::object asarray = py::module_::import("numpy").attr("asarray");
    py::list results;
    for (py::handle result : called(*callable_, views)) results.append(called(asarray, result, py::none(), "C"));
    const std::vector<char*> pointers = data_pointers(results, outputs(), "result", false);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (const std::size_t bytes = outputs()[i].bytes()) std::memcpy(out[i], pointers[i], bytes);
    }
  });
}

}  // namespace ngraph_mxnet
