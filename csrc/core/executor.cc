#include "core/executor.h"

#include <algorithm>
#include <stdexcept>

#include "core/clock.h"
#include "core/team.h"

namespace ngraph_mxnet {

namespace {

constexpr std::size_t kIdleArenas = 8;
constexpr std::size_t kLeastCached = std::size_t{8} << 20;  // of less, a file saves no time
static_assert(kLeastCached >= AlignedBuffer::kMapped, "a buffer of a file is a mapping");

std::vector<std::size_t> pick(const std::vector<std::size_t>& values,
                              const std::vector<std::size_t>& indices) {
  std::vector<std::size_t> picked;
  for (std::size_t index : indices) {
    if (index >= values.size()) {
      throw std::invalid_argument("weight input " + std::to_string(index) + " does not exist");
    }
    picked.push_back(values[index]);
  }
  return picked;
}

void check_reads_only_weights(const BoundProgram& prepare, const std::vector<std::size_t>& weight_inputs) {
  for (const Level& level : prepare.levels()) {
    for (const Instruction& instruction : level) {
      for (const Operand& operand : instruction.operands) {
        if (operand.space != Space::kInput) continue;
        if (std::find(weight_inputs.begin(), weight_inputs.end(), operand.index) == weight_inputs.end()) {
          throw std::invalid_argument("the prepare Program's instruction '" + instruction.name +
                                      "' reads input " + std::to_string(operand.index) +
                                      ", which is no weight");
        }
      }
    }
  }
}

Bindings bindings_of(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs,
                     const Preparation::Prepared& prepared) {
  Bindings bindings;
  bindings.inputs.reserve(inputs.size());
  for (const InputTensor& input : inputs) bindings.inputs.push_back(input.data);
  bindings.outputs = outputs;
  bindings.prepared = prepared == nullptr ? nullptr : prepared->data();
  return bindings;
}

}  // namespace

std::vector<std::size_t> bytes_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::size_t> bytes;
  for (const TensorSpec& spec : specs) bytes.push_back(spec.bytes());
  return bytes;
}

std::atomic<std::size_t> CompiledGraph::all_calls_{0};

void CompiledGraph::call(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs,
                         ArrayHolder* holder) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  last_call_.store(all_calls_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
  const double begin = now();
  observed_run(inputs, outputs, holder);
  const double seconds = now() - begin;
  if (seconds < fastest()) fastest_.store(seconds, std::memory_order_relaxed);
}

Preparation::Preparation(std::shared_ptr<const BoundProgram> prepare, std::size_t prepared_bytes,
                         std::vector<std::size_t> weight_inputs, std::vector<std::size_t> input_bytes, int threads,
                         const std::string& name, CachedWeightsOption cached)
    : prepared_bytes_(prepared_bytes), threads_(threads) {
  const std::vector<std::size_t> weights = pick(input_bytes, weight_inputs);
  if (threads < 1) throw std::invalid_argument("threads must be at least 1, not " + std::to_string(threads));
  if (prepare == nullptr && prepared_bytes > 0) {
    throw std::invalid_argument("prepared_bytes is " + std::to_string(prepared_bytes) +
                                " but there is no prepare Program to fill them");
  }
  if (prepare == nullptr) return;
  check_operands(*prepare, {input_bytes, {}, prepared_bytes});
  check_reads_only_weights(*prepare, weight_inputs);
  if (!cached.prefix.empty() && prepared_bytes >= kLeastCached) {
    const std::string key(reinterpret_cast<const char*>(cached.key.data()), sizeof cached.key);
    cached_.emplace(std::move(cached), prepared_bytes, weight_inputs, weights, threads);
    sets_ = PreparedSets::shared(signature(*prepare) + key, weight_inputs, weights, threads, cached_->hasher());
  } else {
    sets_ = PreparedSets::shared(signature(*prepare), weight_inputs, weights, threads);
  }
  runner_ = std::make_unique<ProgramRunner>(std::move(prepare), threads, 0, "prepare " + name, "prepare");
}

Preparation::Prepared Preparation::get(const std::vector<InputTensor>& inputs, ArrayHolder* holder) {
  if (runner_ == nullptr) return nullptr;
  return sets_->get(inputs, holder, [&](const std::vector<InputTensor>& fixed, const PreparedSets::Hashes& hashes) {
    if (!cached_) return prepare(fixed);
    std::vector<const char*> pointers;
    for (const InputTensor& input : fixed) pointers.push_back(input.data);
    return cached_->get_or_make(pointers, hashes, [&] { return prepare(fixed); });
  });
}

Preparation::Prepared Preparation::prepare(const std::vector<InputTensor>& inputs) {
  runs_.fetch_add(1);
  auto buffer = std::make_shared<AlignedBuffer>(prepared_bytes_);
  run_on_team(threads_, threads_, [&](int share) { buffer->populate(share, threads_); });
  Bindings bindings;
  for (const InputTensor& input : inputs) bindings.inputs.push_back(input.data);
  bindings.prepared = buffer->data();
  runner_->run(bindings);
  return buffer;
}

Executable::Executable(std::shared_ptr<const BoundProgram> main, std::shared_ptr<Preparation> preparation,
                       std::vector<TensorSpec> inputs, std::vector<TensorSpec> outputs, int threads,
                       const std::string& name)
    : CompiledGraph(std::move(inputs), std::move(outputs)),
      main_program_(main),
      name_(name),
      threads_(threads),
      main_(std::move(main), threads, kIdleArenas, "run " + name, "call"),
      preparation_(std::move(preparation)) {
  check_operands(*main_program_, {bytes_of(this->inputs()), bytes_of(this->outputs()), preparation_->bytes()});
}

void Executable::run(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs,
                     ArrayHolder* holder) {
  const Preparation::Prepared prepared = preparation_->get(inputs, holder);
  main_.run(bindings_of(inputs, outputs, prepared));
}

void Executable::run_steps(const std::vector<InputTensor>& inputs, const std::vector<char*>& outputs,
                           const AfterStep& after) {
  const Preparation::Prepared prepared = preparation_->get(inputs, nullptr);
  ProgramRunner runner(main_program_, 1, 0, "steps of " + name_, "call", ProgramRunner::Schedule::kOneByOne);
  runner.run(bindings_of(inputs, outputs, prepared), nullptr, &after);
}

std::vector<std::pair<std::string, double>> Executable::profile(const std::vector<InputTensor>& inputs,
                                                                const std::vector<char*>& outputs) {
  const Preparation::Prepared prepared = preparation_->get(inputs, nullptr);
  const Bindings bindings = bindings_of(inputs, outputs, prepared);
  ProgramRunner runner(main_program_, threads_, 1, "profile " + name_, "call",
                       ProgramRunner::Schedule::kOneByOne);
  runner.run(bindings);  // touches the new arena's pages
  std::vector<double> seconds;
  runner.run(bindings, &seconds);

  std::vector<std::pair<std::string, double>> named;
  for (const Level& level : main_program_->levels()) {
    for (const Instruction& instruction : level) {
      named.emplace_back(instruction.name, seconds[named.size()]);
    }
  }
  return named;
}

namespace {

// Number of the next graph that MXNet has nothing to do with. These numbers are odd, as those of CompileCache are.
std::atomic<std::uint64_t> next_graph{1};

}  // namespace

Binder::Binder(std::shared_ptr<const Program> program, std::shared_ptr<Preparation> preparation, int threads,
               std::string name, bool checked)
    : program_(std::move(program)),
      preparation_(std::move(preparation)),
      threads_(threads),
      name_(std::move(name)),
      checked_(checked),
      graph_(next_graph.fetch_add(2)) {}

std::shared_ptr<Executable> Binder::bind(const Shapes& shapes) const {
  std::optional<Bound> bound = bind_program(*program_, shapes, checked_ ? kStepsOfFiles : kAnySteps);
  if (!bound) return nullptr;
  if (checked_) {
    check_instructions(*bound->program, {bytes_of(bound->inputs), bytes_of(bound->outputs), preparation_->bytes()});
  }
  auto made = std::make_shared<Executable>(std::move(bound->program), preparation_, std::move(bound->inputs),
                                           std::move(bound->outputs), threads_, name_);
  made->set_graph(graph_.load());
  made->set_for_shapes([self = shared_from_this()](const auto& others) { return self->bind(others); }, this);
  return made;
}

}  // namespace ngraph_mxnet
