// A graph that MXNet hands to the partitioner.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mxnet_lib_api.h"

namespace ngraph_mxnet {

// Names are as they stand in MXNet's JSON: its parser leaves escapes alone.
class MXNetGraph {
 public:
  using NodeNames = std::vector<std::pair<std::string, std::string>>;  // (name, operator)

  // Takes the graph: MXNet's wrapper makes it and never frees it.
  explicit MXNetGraph(const mxnet::ext::Graph* graph) : graph_(graph) {}

  // Same schema as Graph::toString(), but "nodes" keeps the graph's own order, which is what the ids of
  // supportedOps are indexed by; toString() sorts by pointers, anew in every run.
  std::string json() const;

  // A text of all that lowering depends on: operators, edges, attributes, with or without the types that MXNet
  // wrote; no names, so that two instances of one model have the same. No two other graphs have.
  std::string structure(bool with_types) const;

  // Whether MXNet wrote shapes at all: a bind cuts regions out a second time without them.
  bool has_types() const;

  NodeNames nodes() const;

  // A variable's name in the whole model; in a region it stands in the attribute `argName`.
  std::vector<std::string> arguments() const;

  // The nodes that the outputs come from.
  std::vector<std::string> outputs() const;

 private:
  std::unique_ptr<const mxnet::ext::Graph> graph_;
};

}  // namespace ngraph_mxnet
