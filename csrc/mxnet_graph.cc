#include "mxnet_graph.h"

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
        text += Writer(*node.subgraphs[i]).write();
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

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

// Every string with its length, so that no two graphs have the same text.
class StructureText {
 public:
  StructureText(const Graph& graph, bool with_types) : with_types_(with_types) { add(graph); }

  const std::string& text() const { return text_; }

 private:
  void add(std::size_t number) {
    text_ += std::to_string(number);
    text_ += ' ';
  }

  void add(const std::string& string) {
    add(string.size());
    text_ += string;
  }

  void add(const std::vector<NodeEntry>& entries, const std::unordered_map<const Node*, std::size_t>& index) {
    add(entries.size());
    for (const NodeEntry& entry : entries) {
      add(index.at(entry.node));
      add(static_cast<std::size_t>(entry.entry));
    }
  }

  void add(const Graph& graph) {
    std::unordered_map<const Node*, std::size_t> index;
    add(graph.size());
    for (std::size_t i = 0; i < graph.size(); ++i) {
      const Node& node = *graph.getNode(i);
      index[&node] = i;
      add(node.op);
      add(node.inputs, index);
      std::map<std::string, std::string> attrs;
      for (const auto& [key, value] : node.attrs) {
        if (key == "argName" || (!with_types_ && starts_with(key, "__ext_"))) continue;
        attrs[key] = value;
      }
      add(attrs.size());
      for (const auto& [key, value] : attrs) {
        add(key);
        add(value);
      }
      add(node.subgraphs.size());
      for (const Graph* subgraph : node.subgraphs) add(*subgraph);
    }
    add(graph.inputs.size());
    for (const Node* input : graph.inputs) add(index.at(input));
    add(graph.outputs, index);
  }

  const bool with_types_;
  std::string text_;
};

}  // namespace

std::string MXNetGraph::json() const { return Writer(*graph_).write(); }

std::string MXNetGraph::structure(bool with_types) const { return StructureText(*graph_, with_types).text(); }

bool MXNetGraph::has_types() const {
  for (std::size_t i = 0; i < graph_->size(); ++i) {
    if (graph_->getNode(i)->attrs.count("__ext_shape__") > 0) return true;
  }
  return false;
}

MXNetGraph::NodeNames MXNetGraph::nodes() const {
  NodeNames names;
  for (std::size_t i = 0; i < graph_->size(); ++i) {
    names.emplace_back(graph_->getNode(i)->name, graph_->getNode(i)->op);
  }
  return names;
}

std::vector<std::string> MXNetGraph::arguments() const {
  std::vector<std::string> names;
  for (const Node* input : graph_->inputs) {
    const auto outer = input->attrs.find("argName");
    names.push_back(outer == input->attrs.end() ? input->name : outer->second);
  }
  return names;
}

std::vector<std::string> MXNetGraph::outputs() const {
  std::vector<std::string> names;
  for (const NodeEntry& output : graph_->outputs) names.push_back(output.node->name);
  return names;
}

}  // namespace ngraph_mxnet
