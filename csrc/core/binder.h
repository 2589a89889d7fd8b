// Binds a Program to the sizes that calls come with.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/executor.h"
#include "core/program.h"

namespace ngraph_mxnet {

class Binder : public std::enable_shared_from_this<Binder> {
 public:
  // `preparation` is what all that is bound shares. One that is `checked` is of a file: it looks at the instructions of what it
  // binds.
  Binder(std::shared_ptr<const Program> program, std::shared_ptr<Preparation> preparation, int threads, std::string name,
         bool checked);

  // Before the first `bind`: the number of the graph, as CompiledGraph::set_graph.
  void set_graph(std::uint64_t graph) { graph_.store(graph); }

  // Returns an Executable that runs inputs of these shapes, or null if a guard or a bound does not hold.
  std::shared_ptr<Executable> bind(const Shapes& shapes) const;

 private:
  std::shared_ptr<const Program> program_;
  std::shared_ptr<Preparation> preparation_;
  int threads_;
  std::string name_;
  bool checked_;
  std::atomic<std::uint64_t> graph_;  // whose bound Programs take their arenas over from each other
};

}  // namespace ngraph_mxnet
