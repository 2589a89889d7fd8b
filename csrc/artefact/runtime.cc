// The C interface of libngraph_runtime.
#include "ngraph_runtime.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "artefact/artefact.h"
#include "core/fork_safety.h"
#include "core/places.h"
#include "core/program_runner.h"

using namespace ngraph_mxnet;

// No thread of MXNet's engine is here.
bool ngraph_mxnet::ends_before_forks() { return false; }

namespace {

constexpr std::size_t kIdleArenas = 8;
constexpr int kMostThreads = 1024;
constexpr std::size_t kMostBound = 64;  // sets of shapes of ranges for which what runs them is kept

// The input from which random numbers follow. The library fills it, and callers do not see it: docs/artefact.md.
constexpr char kState[] = "random.state";
using State = std::array<std::uint64_t, 2>;  // the key and the step

thread_local std::string last_error;

// Gives each call its state.
class Steps {
 public:
  void seed(std::uint64_t key) {
    key_ = key;
    step_ = 0;
  }

  State next() { return {key_, step_++}; }

 private:
  std::atomic<std::uint64_t> key_{0}, step_{0};
};

bool fits_state(const NamedSpec& input) { return input.spec.bytes() == sizeof(State); }

bool fits_state(const Port& input) {
  return input.sizes == std::vector<std::string>{"4"} && 4 * input.element->size == sizeof(State);
}

// Returns the place of the state among a model's inputs; their number where there is none. Throws FormatError if it has
// not the size of a state.
template <class Input>
std::size_t state_place(const std::vector<Input>& inputs) {
  const auto found = std::find_if(inputs.begin(), inputs.end(), [](const Input& each) { return each.name == kState; });
  if (found != inputs.end() && !fits_state(*found)) fail(std::string("input ") + kState + " is no i32[4]");
  return static_cast<std::size_t>(found - inputs.begin());
}

template <class Entry>
std::vector<Entry> without(std::vector<Entry> entries, std::size_t place) {
  if (place < entries.size()) entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(place));
  return entries;
}

// The status of what `body` does.
template <class Body>
ngraph_status status_of(const Body& body) {
  const auto told = [](ngraph_status status, const std::string& text) {
    last_error = text;
    return status;
  };
  try {
    body();
    return NGRAPH_OK;
  } catch (const std::system_error& error) {
    return told(NGRAPH_ERROR_FILE, error.what());
  } catch (const CpuError& error) {
    return told(NGRAPH_ERROR_CPU, error.what());
  } catch (const FormatError& error) {
    return told(NGRAPH_ERROR_FORMAT, error.what());
  } catch (const std::bad_alloc&) {
    return told(NGRAPH_ERROR_MEMORY, "there is not enough memory");
  } catch (const std::length_error&) {
    return told(NGRAPH_ERROR_MEMORY, "there is not enough memory");
  } catch (const std::exception& error) {
    return told(NGRAPH_ERROR_ARGUMENT, error.what());
  }
}

std::vector<ngraph_port> ports(const std::vector<NamedSpec>& specs) {
  std::vector<ngraph_port> made;
  for (const NamedSpec& each : specs) {
    made.push_back({each.name.c_str(), each.spec.element->name, each.spec.element->size, each.spec.shape.size(),
                    each.spec.shape.data(), each.spec.bytes()});
  }
  return made;
}

std::vector<const void*> pointers(const std::vector<std::vector<char>>& arrays) {
  std::vector<const void*> found;
  for (const std::vector<char>& each : arrays) found.push_back(each.data());
  return found;
}

// Arrays for one set of shapes: one for each input and output, of the spec's size and aligned for any element.
struct Reference {
  std::vector<std::vector<char>> inputs, outputs;
};

std::vector<std::vector<char>> read_arrays(Reader* reader, const Section& section,
                                           const std::vector<NamedSpec>& specs) {
  std::vector<std::vector<char>> arrays;
  for (const NamedSpec& each : specs) {
    const auto bytes = reader->number<std::uint64_t>();
    if (bytes != each.spec.bytes()) {
      fail(section.str() + " has " + std::to_string(bytes) + " bytes for " + each.name + ", expected " +
           std::to_string(each.spec.bytes()));
    }
    arrays.push_back(reader->numbers<char>(bytes));
  }
  return arrays;
}

// Returns the reference that the model's file has for a set of its shapes, or none. Throws FormatError if the reference
// is not what was written: loading does not look at references, because few callers want them.
std::optional<Reference> read_reference(const Artefact& model, std::size_t shape_set) {
  const ShapeSet& set = model.shape_sets[shape_set];
  for (const Section& section : model.file->sections()) {
    if (section.kind != kReference) continue;
    model.file->check(section);  // before its number, which may be damaged, too
    Reader reader(model.file->content(section), section.bytes, section.str());
    const std::uint32_t number = reader.u32(), inputs = reader.u32(), outputs = reader.u32();
    if (number != shape_set) continue;
    if (inputs != set.inputs.size() || outputs != set.outputs.size()) {
      fail(section.str() + " has " + std::to_string(inputs) + " inputs and " + std::to_string(outputs) +
           " outputs, expected " + std::to_string(set.inputs.size()) + " and " + std::to_string(set.outputs.size()));
    }
    Reference found;
    found.inputs = read_arrays(&reader, section, set.inputs);
    found.outputs = read_arrays(&reader, section, set.outputs);
    return found;
  }
  return std::nullopt;
}

// A reference as the C interface gives it.
struct KeptReference {
  KeptReference(Reference read, std::size_t state)
      : arrays(std::move(read)), inputs(without(pointers(arrays.inputs), state)), outputs(pointers(arrays.outputs)) {}

  const Reference arrays;
  std::vector<const void*> inputs, outputs;
};

// Ports and runners of one set of shapes.
class Runs {
 public:
  Runs(ShapeSet set, std::shared_ptr<Steps> steps)
      : set_(std::move(set)),
        steps_(std::move(steps)),
        state_(state_place(set_.inputs)),
        inputs_(without(ports(set_.inputs), state_)),
        outputs_(ports(set_.outputs)) {}

  const std::vector<ngraph_port>& inputs() const { return inputs_; }
  const std::vector<ngraph_port>& outputs() const { return outputs_; }

  void run(const void* const* inputs, void* const* outputs, int threads) {
    if (threads < 0 || threads > kMostThreads) {
      throw std::invalid_argument("ngraph_run: " + std::to_string(threads) + " threads, expected 0 to " +
                                  std::to_string(kMostThreads));
    }
    if ((inputs == nullptr && !inputs_.empty()) || (outputs == nullptr && !outputs_.empty())) {
      throw std::invalid_argument("ngraph_run: inputs or outputs is null");
    }
    Bindings bindings;
    bindings.inputs.reserve(set_.inputs.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      bindings.inputs.push_back(static_cast<char*>(const_cast<void*>(checked(inputs[i], inputs_[i], "input"))));
    }
    State state{};
    if (state_ < set_.inputs.size()) {
      state = steps_->next();
      bindings.inputs.insert(bindings.inputs.begin() + static_cast<std::ptrdiff_t>(state_),
                             reinterpret_cast<char*>(state.data()));
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      bindings.outputs.push_back(static_cast<char*>(const_cast<void*>(checked(outputs[i], outputs_[i], "output"))));
    }
    runner(threads == 0 ? usable_cores() : threads).run(bindings);
  }

 private:
  static const void* checked(const void* data, const ngraph_port& port, const char* role) {
    if (data == nullptr && port.bytes > 0) {
      throw std::invalid_argument(std::string(role) + " " + port.name + " is null");
    }
    if (reinterpret_cast<std::uintptr_t>(data) % port.element_bytes != 0) {
      throw std::invalid_argument(std::string(role) + " " + port.name + " is not aligned to its elements of " +
                                  std::to_string(port.element_bytes) + " bytes");
    }
    return data;
  }

  // Made once for each number of threads.
  ProgramRunner& runner(int threads) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    std::unique_ptr<ProgramRunner>& found = runners_[threads];
    if (found == nullptr) {
      found = std::make_unique<ProgramRunner>(set_.program, threads, kIdleArenas, "run", "call");
    }
    return *found;
  }

  const ShapeSet set_;
  const std::shared_ptr<Steps> steps_;
  const std::size_t state_;
  std::vector<ngraph_port> inputs_, outputs_;
  ForkSafeMutex mutex_{Rank::kIdleRuns};
  std::map<int, std::unique_ptr<ProgramRunner>> runners_;
};

// A range as the C interface tells of it.
class ToldRange {
 public:
  explicit ToldRange(const ProgramSet& set) {
    for (const auto* from : {&set.inputs, &set.outputs}) {
      for (const Port& port : *from) {
        if (from == &set.outputs || port.name != kState) add(port, from == &set.inputs ? &inputs_ : &outputs_);
      }
    }
    for (const Symbol& each : set.symbols) {
      symbols_.push_back({each.name.c_str(), each.bounds.low, each.bounds.high});
    }
    for (const GuardedProgram& each : set.programs) {
      if (&each != &set.programs.front()) guards_ += "\n";
      for (const std::string& guard : each.guards) guards_ += (&guard == &each.guards.front() ? "" : ", ") + guard;
    }
  }

  const std::vector<ngraph_range_port>& inputs() const { return inputs_; }
  const std::vector<ngraph_range_port>& outputs() const { return outputs_; }
  const std::vector<ngraph_symbol>& symbols() const { return symbols_; }
  const std::string& guards() const { return guards_; }

 private:
  void add(const Port& port, std::vector<ngraph_range_port>* to) {
    std::vector<const char*>& sizes = sizes_.emplace_back();
    for (const std::string& size : port.sizes) sizes.push_back(size.c_str());
    to->push_back({port.name.c_str(), port.element->name, port.element->size, sizes.size(), sizes.data()});
  }

  std::deque<std::vector<const char*>> sizes_;
  std::vector<ngraph_range_port> inputs_, outputs_;
  std::vector<ngraph_symbol> symbols_;
  std::string guards_;
};

template <class Entry>
const Entry* at(const std::vector<Entry>& entries, std::size_t number) {
  return number < entries.size() ? &entries[number] : nullptr;
}

}  // namespace

struct ngraph_bound {
  std::shared_ptr<Runs> runs;
};

struct ngraph_model {
  explicit ngraph_model(const char* path) : artefact(load_artefact(path)) {
    for (const ShapeSet& set : artefact.shape_sets) {
      runs.push_back(std::make_shared<Runs>(set, steps));
      fixed.emplace(input_shapes(set), runs.back());
    }
    if (!artefact.shape_sets.empty()) state = state_place(artefact.shape_sets.front().inputs);
    for (const ProgramSet& set : artefact.ranges) {
      ranges.emplace_back(set);
      state = state_place(set.inputs);  // that of all sets
    }
  }

  std::size_t all_inputs() const {
    return artefact.ranges.empty() ? artefact.shape_sets.front().inputs.size() : artefact.ranges.front().inputs.size();
  }

  bool draws() const { return state < all_inputs(); }
  std::size_t input_count() const { return all_inputs() - draws(); }

  std::size_t output_count() const {
    return artefact.ranges.empty() ? artefact.shape_sets.front().outputs.size()
                                   : artefact.ranges.front().outputs.size();
  }

  // The inputs' shapes, without that of the state.
  std::shared_ptr<Runs> bind(Shapes shapes) {
    if (draws() && shapes.size() == input_count()) {
      shapes.insert(shapes.begin() + static_cast<std::ptrdiff_t>(state), {sizeof(State) / sizeof(std::int32_t)});
    }
    const auto same = fixed.find(shapes);
    if (same != fixed.end()) return same->second;
    {
      const std::lock_guard<ForkSafeMutex> lock(bound_mutex);
      const auto known = std::find_if(bound.begin(), bound.end(), [&](const auto& one) { return one.first == shapes; });
      if (known != bound.end()) {
        bound.splice(bound.begin(), bound, known);
        return known->second;
      }
    }
    auto made = std::make_shared<Runs>(bind_range(artefact.ranges, artefact.shape_sets, shapes), steps);
    const std::lock_guard<ForkSafeMutex> lock(bound_mutex);
    bound.emplace_front(shapes, made);
    if (bound.size() > kMostBound) bound.pop_back();
    return made;
  }

  const ngraph_port* port(std::size_t set, std::size_t number, bool output) const {
    if (set >= runs.size()) return nullptr;
    const std::vector<ngraph_port>& all = output ? runs[set]->outputs() : runs[set]->inputs();
    return number < all.size() ? &all[number] : nullptr;
  }

  // Null if the file has none; read when it is first asked for.
  const KeptReference* reference(std::size_t set) {
    const std::lock_guard<ForkSafeMutex> lock(references_mutex);
    const auto known = references.find(set);
    if (known != references.end()) return &known->second;
    auto read = read_reference(artefact, set);
    return read ? &references.try_emplace(set, *std::move(read), state).first->second : nullptr;
  }

  const Artefact artefact;
  const std::shared_ptr<Steps> steps = std::make_shared<Steps>();
  std::size_t state = 0;  // its place among the inputs; their number where the model draws nothing
  std::vector<std::shared_ptr<Runs>> runs;
  std::map<Shapes, std::shared_ptr<Runs>> fixed;
  std::deque<ToldRange> ranges;
  ForkSafeMutex bound_mutex{Rank::kBoundModels};
  std::list<std::pair<Shapes, std::shared_ptr<Runs>>> bound;  // the one used last is first
  ForkSafeMutex references_mutex{Rank::kReferences};
  std::map<std::size_t, KeptReference> references;
};

namespace {

void check_set(const std::string& function, const ngraph_model* model, std::size_t set) {
  if (model == nullptr) throw std::invalid_argument(function + ": the model is null");
  if (set >= model->runs.size()) {
    throw std::invalid_argument(function + ": there is no set of shapes " + std::to_string(set) + ", the model has " +
                                std::to_string(model->runs.size()));
  }
}

}  // namespace

const char* ngraph_runtime_version() { return NGRAPH_RUNTIME_VERSION; }

int ngraph_runtime_abi() { return NGRAPH_RUNTIME_ABI; }

const char* ngraph_last_error() { return last_error.c_str(); }

ngraph_status ngraph_load(const char* path, ngraph_model** model) {
  return status_of([&] {
    if (model == nullptr) throw std::invalid_argument("ngraph_load: an argument is null");
    *model = nullptr;
    if (path == nullptr) throw std::invalid_argument("ngraph_load: an argument is null");
    *model = new ngraph_model(path);
  });
}

void ngraph_free(ngraph_model* model) { delete model; }

const char* ngraph_metadata(const ngraph_model* model) {
  return model == nullptr ? "" : model->artefact.metadata.c_str();
}

const char* ngraph_instruction_set(const ngraph_model* model) {
  return model == nullptr ? "" : model->artefact.instruction_set.c_str();
}

size_t ngraph_shape_sets(const ngraph_model* model) { return model == nullptr ? 0 : model->runs.size(); }

size_t ngraph_inputs(const ngraph_model* model) { return model == nullptr ? 0 : model->input_count(); }

size_t ngraph_outputs(const ngraph_model* model) { return model == nullptr ? 0 : model->output_count(); }

const ngraph_port* ngraph_input(const ngraph_model* model, size_t shape_set, size_t number) {
  return model == nullptr ? nullptr : model->port(shape_set, number, false);
}

const ngraph_port* ngraph_output(const ngraph_model* model, size_t shape_set, size_t number) {
  return model == nullptr ? nullptr : model->port(shape_set, number, true);
}

ngraph_status ngraph_reference(ngraph_model* model, size_t shape_set, const void* const** inputs,
                               const void* const** outputs) {
  return status_of([&] {
    if (inputs == nullptr || outputs == nullptr) throw std::invalid_argument("ngraph_reference: an argument is null");
    *inputs = *outputs = nullptr;
    check_set("ngraph_reference", model, shape_set);
    const KeptReference* const found = model->reference(shape_set);
    if (found != nullptr) {
      *inputs = found->inputs.data();
      *outputs = found->outputs.data();
    }
  });
}

ngraph_status ngraph_run(ngraph_model* model, size_t shape_set, const void* const* inputs, void* const* outputs,
                         int threads) {
  return status_of([&] {
    check_set("ngraph_run", model, shape_set);
    model->runs[shape_set]->run(inputs, outputs, threads);
  });
}

ngraph_status ngraph_seed(ngraph_model* model, uint64_t seed) {
  return status_of([&] {
    if (model == nullptr) throw std::invalid_argument("ngraph_seed: the model is null");
    model->steps->seed(seed);
  });
}

size_t ngraph_ranges(const ngraph_model* model) { return model == nullptr ? 0 : model->ranges.size(); }

const ngraph_range_port* ngraph_range_input(const ngraph_model* model, size_t range, size_t number) {
  return range < ngraph_ranges(model) ? at(model->ranges[range].inputs(), number) : nullptr;
}

const ngraph_range_port* ngraph_range_output(const ngraph_model* model, size_t range, size_t number) {
  return range < ngraph_ranges(model) ? at(model->ranges[range].outputs(), number) : nullptr;
}

const ngraph_symbol* ngraph_range_symbol(const ngraph_model* model, size_t range, size_t number) {
  return range < ngraph_ranges(model) ? at(model->ranges[range].symbols(), number) : nullptr;
}

const char* ngraph_range_guards(const ngraph_model* model, size_t range) {
  return range < ngraph_ranges(model) ? model->ranges[range].guards().c_str() : nullptr;
}

ngraph_status ngraph_bind(ngraph_model* model, const int64_t* const* shapes, const size_t* ranks,
                          ngraph_bound** bound) {
  return status_of([&] {
    if (bound == nullptr) throw std::invalid_argument("ngraph_bind: an argument is null");
    *bound = nullptr;
    if (model == nullptr) throw std::invalid_argument("ngraph_bind: the model is null");
    const std::size_t inputs = model->input_count();
    if (inputs > 0 && (shapes == nullptr || ranks == nullptr)) {
      throw std::invalid_argument("ngraph_bind: an argument is null");
    }
    Shapes wanted;
    for (std::size_t i = 0; i < inputs; ++i) {
      if (ranks[i] > 0 && shapes[i] == nullptr) throw std::invalid_argument("ngraph_bind: a shape is null");
      wanted.emplace_back(shapes[i], shapes[i] + ranks[i]);
    }
    *bound = new ngraph_bound{model->bind(wanted)};
  });
}

void ngraph_unbind(ngraph_bound* bound) { delete bound; }

const ngraph_port* ngraph_bound_input(const ngraph_bound* bound, size_t number) {
  return bound == nullptr ? nullptr : at(bound->runs->inputs(), number);
}

const ngraph_port* ngraph_bound_output(const ngraph_bound* bound, size_t number) {
  return bound == nullptr ? nullptr : at(bound->runs->outputs(), number);
}

ngraph_status ngraph_run_bound(ngraph_bound* bound, const void* const* inputs, void* const* outputs, int threads) {
  return status_of([&] {
    if (bound == nullptr) throw std::invalid_argument("ngraph_run_bound: what is to run is null");
    bound->runs->run(inputs, outputs, threads);
  });
}
