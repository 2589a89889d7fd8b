// Element types and tensor types as the runtime needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ngraph_mxnet {

// One element type and its names in the worlds the runtime meets.
struct Element {
  const char* name;  // the IR's name
  char numpy_kind;   // dtype.kind
  std::size_t size;
  int mxnet;  // MXNet's dtype number, -1 when MXNet has none
};

// Throws std::invalid_argument for an unknown name.
const Element& element_by_name(const std::string& name);

// By MXNet's number; null if there is none.
const Element* element_of_mxnet(int dtype);

// Name of an MXNet dtype number, for messages.
std::string mxnet_dtype_name(int dtype);

struct TensorSpec {
  const Element* element;
  std::vector<std::int64_t> shape;

  TensorSpec(const std::string& element_name, std::vector<std::int64_t> dims);

  std::size_t bytes() const;
  std::string str() const;  // f32[1,3,224,224]
};

std::string shape_str(const std::vector<std::int64_t>& shape);

}  // namespace ngraph_mxnet
