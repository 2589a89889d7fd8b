// A compiled graph that a Python function runs, on NumPy arrays.
#pragma once

#include <memory>
#include <vector>

#include <pybind11/pybind11.h>

#include "core/executor.h"

namespace ngraph_mxnet {

// The callable gets a list of read-only views, valid during the call only, and returns a list of arrays.
class PythonExecutable : public CompiledGraph {
 public:
  PythonExecutable(pybind11::object callable, std::vector<TensorSpec> inputs,
                   std::vector<TensorSpec> outputs);

  bool runs_anywhere() const override { return false; }
  void run(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs, ArrayHolder* holder) override;

 private:
  std::shared_ptr<pybind11::object> callable_;
};

}  // namespace ngraph_mxnet
