#include "core/tensor_spec.h"

#include <stdexcept>

namespace ngraph_mxnet {
namespace {

constexpr Element kElements[] = {
    {"bool", 'b', 1, 7}, {"f16", 'f', 2, 2},  {"f32", 'f', 4, 0},  {"f64", 'f', 8, 1},
    {"i8", 'i', 1, 5},   {"i16", 'i', 2, -1}, {"i32", 'i', 4, 4},  {"i64", 'i', 8, 6},
    {"u8", 'u', 1, 3},   {"u16", 'u', 2, -1}, {"u32", 'u', 4, -1}, {"u64", 'u', 8, -1},
};

}  // namespace

const Element& element_by_name(const std::string& name) {
  std::string known;
  for (const Element& element : kElements) {
    if (name == element.name) return element;
    known += known.empty() ? element.name : std::string(", ") + element.name;
  }
  throw std::invalid_argument("unknown element type '" + name + "'; known: " + known);
}

const Element* element_of_mxnet(int dtype) {
  for (const Element& element : kElements) {
    if (element.mxnet >= 0 && dtype == element.mxnet) return &element;
  }
  return nullptr;
}

std::string mxnet_dtype_name(int dtype) {
  const Element* const element = element_of_mxnet(dtype);
  return element == nullptr ? "MXNet dtype " + std::to_string(dtype) : element->name;
}

TensorSpec::TensorSpec(const std::string& element_name, std::vector<std::int64_t> dims)
    : element(&element_by_name(element_name)), shape(std::move(dims)) {
  for (std::int64_t dim : shape) {
    if (dim < 0) throw std::invalid_argument("negative dimension in " + shape_str(shape));
  }
}

std::size_t TensorSpec::bytes() const {
  std::size_t total = element->size;
  for (std::int64_t dim : shape) total *= static_cast<std::size_t>(dim);
  return total;
}

std::string TensorSpec::str() const { return element->name + shape_str(shape); }

std::string shape_str(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ",";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace ngraph_mxnet
