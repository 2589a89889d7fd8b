#include "artefact/packaged_graph.h"

#include <mutex>
#include <stdexcept>
#include <utility>

#include "artefact/artefact_file.h"

namespace ngraph_mxnet {
namespace {

constexpr std::size_t kIdleArenas = 8;

// Returns the buffer by which PreparedSets remembers whether weights are the file's.
const PreparedSets::Buffer& verdict(bool are_of_file) {
  static const auto* const verdicts = new PreparedSets::Buffer[2]{std::make_shared<const AlignedBuffer>(0),
                                                                  std::make_shared<const AlignedBuffer>(0)};
  return verdicts[are_of_file];
}

std::string text_of(const std::vector<PackagedGraph::Weight>& weights) {
  std::string text = "weights of a file";
  for (const PackagedGraph::Weight& weight : weights) {
    text.append(reinterpret_cast<const char*>(&weight.check), sizeof weight.check);
  }
  return text;
}

}  // namespace

PackagedGraph::PackagedGraph(std::shared_ptr<const BoundProgram> program, std::vector<std::size_t> places,
                             std::vector<Weight> weights, std::vector<TensorSpec> inputs,
                             std::vector<TensorSpec> outputs, int threads, const std::string& name, Compile compile)
    : CompiledGraph(std::move(inputs), std::move(outputs)),
      runner_(program, threads, kIdleArenas, "run " + name, "call"),
      places_(std::move(places)),
      weights_(std::move(weights)),
      compile_(std::move(compile)) {
  const auto input = [&](std::size_t place) -> const TensorSpec& {
    if (place >= this->inputs().size()) throw std::invalid_argument("input " + std::to_string(place) + " does not exist");
    return this->inputs()[place];
  };
  Surroundings around{{}, {}, 0};
  for (std::size_t place : places_) around.input_bytes.push_back(input(place).bytes());
  for (const TensorSpec& output : this->outputs()) around.output_bytes.push_back(output.bytes());
  check_operands(*program, around);
  std::vector<std::size_t> numbers, bytes;
  for (const Weight& weight : weights_) {
    numbers.push_back(weight.input);
    bytes.push_back(input(weight.input).bytes());
  }
  if (!weights_.empty()) {
    sets_ = PreparedSets::shared(text_of(weights_), std::move(numbers), std::move(bytes), threads, check_of);
  }
}

void PackagedGraph::run(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs,
                        ArrayHolder* holder) {
  if (sets_ != nullptr) {
    const auto look = [&](const std::vector<InputTensor>&, const PreparedSets::Hashes& hashes) {
      return verdict(are_of_file(hashes));
    };
    if (sets_->get(inputs, holder, look) != verdict(true)) return compiled().run(inputs, outputs, holder);
  }
  Bindings bindings;
  for (std::size_t place : places_) bindings.inputs.push_back(inputs[place].data);
  bindings.outputs = outputs;
  runner_.run(bindings);
}

void PackagedGraph::set_graph(std::uint64_t graph) {
  graph_ = graph;
  runner_.set_graph(graph);
}

bool PackagedGraph::are_of_file(const PreparedSets::Hashes& hashes) {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (hashes[i] == weights_[i].check) continue;
    differing_ = weights_[i].input;
    return false;
  }
  return true;
}

CompiledGraph& PackagedGraph::compiled() {
  {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    if (compiled_ != nullptr) return *compiled_;
  }
  std::shared_ptr<CompiledGraph> made = compile_(differing_);  // waits for the GIL, which none may who holds a lock
  made->set_graph(graph_);
  const std::lock_guard<ForkSafeMutex> lock(mutex_);
  if (compiled_ == nullptr) compiled_ = std::move(made);
  return *compiled_;
}

}  // namespace ngraph_mxnet
