// A Program for a range of sizes, for what calls arrays of any of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/executor.h"
#include "core/template_code.h"

namespace ngraph_mxnet {

class ProgramTemplate : public std::enable_shared_from_this<ProgramTemplate> {
 public:
  // `preparation` is what all its Programs share. One that is `checked` looks at the instructions of what it binds, as at
  // those of a file. Throws std::invalid_argument for what refers to nothing.
  ProgramTemplate(TemplateCode code, std::shared_ptr<Preparation> preparation, int threads, std::string name, bool checked);

  // Before the first `bind`: the number of the graph, as CompiledGraph::set_graph.
  void set_graph(std::uint64_t graph) { graph_.store(graph); }

  // What runs inputs of these shapes; null where a guard or a bound does not hold.
  std::shared_ptr<Executable> bind(const Shapes& shapes) const;

 private:
  TemplateCode code_;
  std::shared_ptr<Preparation> preparation_;
  int threads_;
  std::string name_;
  bool checked_;
  std::atomic<std::uint64_t> graph_;  // whose Programs take their arenas over from each other
};

}  // namespace ngraph_mxnet
