#include "graph_json.h"

#include <map>
#include <unordered_map>

namespace ngraph_mxnet {
namespace {

using mxnet::ext::Graph;
using mxnet::ext::Node;
using mxnet::ext::NodeEntry;

// MXNet's parser keeps escapes as they stand in the text, so they must not be escaped again.
std::string quoted(const std::string& text) { return "\"" + text + "\""; }

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {
    for (std::size_t i = 0; i < graph.size(); ++i) index_[graph.getNode(i)] = i;
  }

  std::string write() const {
    std::string text = "{\"nodes\": [";
    for (std::size_t i = 0; i < graph_.size(); ++i) {
      if (i > 0) text += ",";
      text += node(*graph_.getNode(i));
    }
    text += "],\"arg_nodes\": [";
    for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (i > 0) text += ",";
      text += std::to_string(index_.at(graph_.inputs[i]));
    }
    text += "],\"heads\": " + entries(graph_.outputs);
    for (const auto& [key, value] : graph_.attrs) text += "," + quoted(key) + ": " + value.dump();
    return text + "}";
  }

 private:
  std::string node(const Node& node) const {
    std::string text = "{\"op\": " + quoted(node.op) + ",\"name\": " + quoted(node.name) +
                       ",\"inputs\": " + entries(node.inputs) + ",\"attrs\": {";
    // Sorted, so that the same graph always gives the same text.
    const std::map<std::string, std::string> attrs(node.attrs.begin(), node.attrs.end());
    bool first = true;
    for (const auto& [key, value] : attrs) {
      text += (first ? "" : ",") + quoted(key) + ": " + quoted(value);
      first = false;
    }
    text += "}";
    if (!node.subgraphs.empty()) {
      text += ",\"subgraphs\": [";
      for (std::size_t i = 0; i < node.subgraphs.size(); ++i) {
        if (i > 0) text += ",";
        text += graph_json(*node.subgraphs[i]);
      }
      text += "]";
    }
    return text + "}";
  }

  std::string entries(const std::vector<NodeEntry>& entries) const {
    std::string text = "[";
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) text += ",";
      text += "[" + std::to_string(index_.at(entries[i].node)) + "," + std::to_string(entries[i].entry) + ",0]";
    }
    return text + "]";
  }

  const Graph& graph_;
  std::unordered_map<const Node*, std::size_t> index_;
};

}  // namespace

std::string graph_json(const Graph& graph) { return Writer(graph).write(); }

}  // namespace ngraph_mxnet
