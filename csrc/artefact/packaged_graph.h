// A graph whose program and prepared weights come from a compiled file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/bound_program.h"
#include "core/content_hash.h"
#include "core/executor.h"
#include "core/fork_safety.h"
#include "core/prepared_sets.h"
#include "core/program_runner.h"

namespace ngraph_mxnet {

// Runs the file's program as long as the weights are, by all their content, those that the file was made of; when that
// is looked at again `PreparedSets` says. With other weights it runs what `compile` makes.
class PackagedGraph : public CompiledGraph {
 public:
  // Gets the input that is not the file's. Called on any thread, without locks, possibly by several at once.
  using Compile = std::function<std::shared_ptr<CompiledGraph>(std::size_t input)>;

  // Which input is a weight, and the check of its content (docs/artefact.md).
  struct Weight {
    std::size_t input;
    Hash128 check;
  };

  // `places`: which of `inputs` each input of the program is. Throws std::invalid_argument where the program does not fit.
  PackagedGraph(std::shared_ptr<const BoundProgram> program, std::vector<std::size_t> places, std::vector<Weight> weights,
                std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs, int threads, const std::string& name,
                Compile compile);

  void run(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs, ArrayHolder* holder) override;
  void set_graph(std::uint64_t graph) override;
  int threads() const override { return runner_.threads(); }

 private:
  bool are_of_file(const PreparedSets::Hashes& hashes);
  CompiledGraph& compiled();

  ProgramRunner runner_;
  std::vector<std::size_t> places_;
  std::vector<Weight> weights_;
  std::shared_ptr<PreparedSets> sets_;
  std::uint64_t graph_ = 0;
  Compile compile_;
  std::atomic<std::size_t> differing_{0};
  ForkSafeMutex mutex_{Rank::kPackagedGraph};
  std::shared_ptr<CompiledGraph> compiled_;
};

}  // namespace ngraph_mxnet
