// The parts that MXNet loads: the backend's name and the op that runs a subgraph. Python compiles subgraphs
// (ngraph_mxnet.plugin.callbacks), but does not run them.

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "core/fork_safety.h"
#include "core/python_runtime.h"
#include "mxnet/compile_cache.h"
#include "mxnet/engine.h"
#include "mxnet/mxnet_lib_api.h"

namespace py = pybind11;

namespace ngraph_mxnet {
namespace {

using mxnet::ext::CustomStatefulOp;
using mxnet::ext::MXContext;
using mxnet::ext::MXReturnValue;
using mxnet::ext::MXTensor;
using Attributes = std::unordered_map<std::string, std::string>;

py::object callback(const char* name) {
  PyObject* module = take_gil([] { return PyImport_ImportModule("ngraph_mxnet.plugin.callbacks"); });
  if (module == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(module).attr(name);
}

// Regions are found in Python (plugin/binding/partitioner.py), before libmxnet sees a graph: it needs to know
// the backend's name, and takes no node. To MXNet -1 would mean any region.
MXReturnValue supported_ops(const mxnet::ext::Graph*, std::vector<int>* ids, const Attributes&) {
  constexpr int kUnsupported = -2;
  ids->assign(ids->size(), kUnsupported);
  return mxnet::ext::MX_SUCCESS;
}

CompileCache::Compiled compile(const CompileKey& key) {
  return with_gil([&] {
    py::list shapes;
    for (const auto& shape : key.shapes) shapes.append(py::tuple(py::cast(shape)));
    const py::object compiled = called(callback("compile_subgraph"), key.graph_json, shapes, key.types, key.attrs);
    if (py::isinstance<py::tuple>(compiled)) {
      const auto [graph, range] =
          compiled.cast<std::pair<CompileCache::Result, std::shared_ptr<Binder>>>();
      return CompileCache::Compiled{graph, range};
    }
    if (!py::isinstance<CompiledGraph>(compiled)) {
      throw std::runtime_error("compile_subgraph returned a " +
                               py::type::of(compiled).attr("__name__").cast<std::string>());
    }
    return CompileCache::Compiled{compiled.cast<CompileCache::Result>()};
  });
}

// Throws unless the tensor is what the graph was compiled for.
void check_tensor(const std::string& what, const std::vector<std::int64_t>& shape, int dtype,
                  const TensorSpec& expected) {
  if (shape != expected.shape || dtype != expected.element->mxnet) {
    throw std::runtime_error(what + " is " + mxnet_dtype_name(dtype) + shape_str(shape) +
                             ", but the graph was compiled for " + expected.str());
  }
}

void check_count(const char* what, std::size_t found, std::size_t expected) {
  if (found != expected) {
    throw std::runtime_error("got " + std::to_string(found) + " " + what + ", but the graph was compiled for " +
                             std::to_string(expected));
  }
}

void check_dense(const std::string& what, const MXTensor& tensor, const TensorSpec& expected) {
  if (tensor.stype != mxnet::ext::kDefaultStorage) throw std::runtime_error(what + " is sparse, expected dense");
  check_tensor(what, tensor.shape, tensor.dtype, expected);
}

// MXNet turns a message that begins with the name of a Python exception into that exception; a failure of
// ours is always an MXNetError.
template <class Body>
auto as_op(Body body) {
  const WithoutGil guard;
  try {
    return body();
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("NGraphSubgraphOp: ") + error.what());
  }
}

class SubgraphOp : public CustomStatefulOp {
 public:
  // The op is its holder's own: made while the holder makes an executor or calls its cached op.
  explicit SubgraphOp(CompileCache::Result compiled)
      : compiled_(std::move(compiled)), holder_(ArrayHolder::current()) {
    ignore_warn = true;
    if (holder_ != nullptr) holder_->made(compiled_);
  }

  MXReturnValue Forward(std::vector<MXTensor>* inputs, std::vector<MXTensor>* outputs,
                        const mxnet::ext::OpResource&) override {
    learn_thread();
    return as_op([&] {
      run(*inputs, *outputs);
      return mxnet::ext::MX_SUCCESS;
    });
  }

 private:
  void run(const std::vector<MXTensor>& inputs, const std::vector<MXTensor>& outputs) {
    const std::vector<TensorSpec>& in_specs = compiled_->inputs();
    const std::vector<TensorSpec>& out_specs = compiled_->outputs();
    check_count("inputs", inputs.size(), in_specs.size());
    check_count("outputs", outputs.size(), out_specs.size());
    std::vector<InputTensor> in;
    in.reserve(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_dense("input " + std::to_string(i), inputs[i], in_specs[i]);
      in.push_back({static_cast<char*>(inputs[i].data_ptr), inputs[i].verID});
    }
    std::vector<char*> out;
    out.reserve(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      check_dense("output " + std::to_string(i), outputs[i], out_specs[i]);
      out.push_back(static_cast<char*>(outputs[i].data_ptr));
    }
    compiled_->call(in, out, holder_.get());
  }

  CompileCache::Result compiled_;
  std::shared_ptr<ArrayHolder> holder_;  // of the inputs; null: nobody is known to hold them
};

MXReturnValue create_state(const Attributes& attributes, const MXContext&,
                           const std::vector<std::vector<unsigned int>>& in_shapes,
                           const std::vector<int> in_types, CustomStatefulOp** op) {
  CompileKey key;
  for (const auto& [name, value] : attributes) {
    if (name.rfind("__ext_", 0) == 0) continue;  // the types of outputs, from the partitioning only
    (name == MX_STR_SUBGRAPH_SYM_JSON ? key.graph_json : key.attrs[name]) = value;
  }
  for (const auto& shape : in_shapes) key.shapes.emplace_back(shape.begin(), shape.end());
  key.types = in_types;

  return as_op([&] {
    CompileCache::Result compiled = [&] {
      const OutOfTurn compiling;
      return CompileCache::instance().get(std::move(key), compile);
    }();
    check_count("inputs", in_shapes.size(), compiled->inputs().size());
    for (std::size_t i = 0; i < in_shapes.size(); ++i) {
      check_tensor("input " + std::to_string(i), {in_shapes[i].begin(), in_shapes[i].end()}, in_types[i],
                   compiled->inputs()[i]);
    }
    *op = CustomStatefulOp::create<SubgraphOp>(std::move(compiled));
    return mxnet::ext::MX_SUCCESS;
  });
}

}  // namespace

// Scripts write the name both ways.
REGISTER_PARTITIONER(NGRAPH)
    .addStrategy("ngraph", "NGraphSubgraphOp")
    .setSupportedOps("ngraph", supported_ops);

REGISTER_PARTITIONER(ngraph)
    .addStrategy("ngraph", "NGraphSubgraphOp")
    .setSupportedOps("ngraph", supported_ops);

REGISTER_OP(NGraphSubgraphOp).setIsSubgraphOp().setCreateOpState(create_state, "cpu");

}  // namespace ngraph_mxnet

mxnet::ext::MXReturnValue initialize(int version) {
  if (version >= 10900 && version < 20000) return mxnet::ext::MX_SUCCESS;
  MX_ERROR_MSG << "ngraph_mxnet was built for MXNet 1.9, this is version " << version;
  return mxnet::ext::MX_FAIL;
}
