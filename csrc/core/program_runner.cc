#include "core/program_runner.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <list>
#include <map>
#include <utility>

#include <unistd.h>

#include "core/aligned_buffer.h"
#include "core/clock.h"
#include "core/fork_safety.h"
#include "core/result_watch.h"
#include "core/team.h"
#include "core/trace.h"

namespace ngraph_mxnet {
namespace {

constexpr std::int64_t kChunksPerThread = 6;
// Limits of the arenas that all runners together keep: always the latest kLatestArenas, more only within kOlderBytes
// and kMostArenas. A model that meets a hundred shapes does not keep a hundred arenas.
constexpr std::size_t kLatestArenas = 16;
constexpr std::size_t kOlderBytes = std::size_t{64} << 20;
constexpr std::size_t kMostArenas = 256;
// Beside the arenas of the shape in use, those of the graph's other shapes that fit in so many bytes with them.
constexpr std::size_t kGraphBytes = std::size_t{8} << 20;

// How many threads pay for instructions of a level: a thread that is awake comes a microsecond later, and its caches
// are others. Rates of a core that reads its second cache; what names neither operations nor bytes may be long.
constexpr double kWorthAThread = 1e-6, kOperationsPerSecond = 5e10, kBytesPerSecond = 2e10;

int width_of(const Level& level, int threads) {
  double seconds = 0;
  for (const Instruction& each : level) {
    if (each.operations == 0 && each.bytes == 0) return threads;
    seconds += std::max(each.operations / kOperationsPerSecond, each.bytes / kBytesPerSecond);
  }
  return static_cast<int>(std::clamp(seconds / kWorthAThread, 1.0, static_cast<double>(threads)));
}

// Also those that this process may not use now: that changes.
int machine_cores() { return std::max(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), 1); }

void announce(char* const* tensors, const std::int64_t*, const double*, std::int64_t, std::int64_t) {
  announce_result(tensors[0]);
}

// For each level the outputs that no later one refers to.
std::vector<std::vector<std::size_t>> final_outputs(const std::vector<Level>& levels) {
  std::map<std::size_t, std::size_t> last;
  for (std::size_t level = 0; level < levels.size(); ++level) {
    for (const Instruction& instruction : levels[level]) {
      for (const Operand& operand : instruction.operands) {
        if (operand.space == Space::kOutput) last[operand.index] = level;
      }
    }
  }
  std::vector<std::vector<std::size_t>> found(levels.size());
  for (const auto& [output, level] : last) found[level].push_back(output);
  return found;
}

}  // namespace

// Memory and operands that one call owns while it runs.
struct ProgramRunner::Frame {
  AlignedBuffer arena;
  std::vector<char*> operands;
  // While the call is traced: its number, and the label of the first step.
  bool traced;
  std::uint64_t call;
  std::uint32_t first_label;
};

// Work of a team in one call.
class ProgramRunner::Run final : public TeamWork {
 public:
  Run(const ProgramRunner* runner, Frame* frame, std::vector<double>* seconds, const AfterStep* after)
      : runner_(runner), frame_(frame), seconds_(seconds), after_(after), last_(seconds == nullptr ? 0 : now()) {}

  int phases() const override { return static_cast<int>(runner_->phases_.size()); }
  Phase phase(int number) const override {
    const auto& [serial, chunks] = runner_->phases_[number];
    return {static_cast<int>(chunks.size()), serial};
  }
  void run(int phase, int chunk) override { runner_->run_chunk(runner_->phases_[phase].chunks[chunk], frame_); }
  void ended(int phase) override {
    if (after_ != nullptr) (*after_)(phase, frame_->arena.data());
    if (seconds_ == nullptr) return;
    const double end = now();
    (*seconds_)[phase] += end - std::exchange(last_, end);
  }

 private:
  const ProgramRunner* runner_;
  Frame* frame_;
  std::vector<double>* seconds_;
  const AfterStep* after_;
  double last_;  // when the latest phase ended
};

// The frames that no call uses, of all runners, the latest first.
class ProgramRunner::IdleFrames {
 public:
  static IdleFrames& instance() {
    // Never destroyed: MXNet's threads may still run while the process exits.
    static IdleFrames* const frames = new IdleFrames;
    return *frames;
  }

  // A frame of the runner's, or null.
  std::unique_ptr<Frame> take(const ProgramRunner* runner) {
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->runner == runner) return remove(entry);
    }
    return nullptr;
  }

  // The largest arena of a runner of the same graph for other shapes, which loses it; or an empty one.
  AlignedBuffer take_over(const ProgramRunner* runner) {
    if (runner->graph_ == 0) return {};
    std::unique_ptr<Frame> found;  // freed after the lock is gone
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    auto largest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->runner->graph_ != runner->graph_) continue;
      if (largest == entries_.end() || entry->frame->arena.capacity() > largest->frame->arena.capacity()) {
        largest = entry;
      }
    }
    if (largest == entries_.end()) return {};
    found = remove(largest);
    return std::move(found->arena);
  }

  void put(const ProgramRunner* runner, std::unique_ptr<Frame> frame, std::size_t most) {
    std::vector<std::unique_ptr<Frame>> dropped;  // freed after the lock is gone
    const std::lock_guard<ForkSafeMutex> lock(mutex_);
    bytes_ += frame->arena.capacity();
    entries_.push_front({runner, std::move(frame)});
    const auto own = [&](const Entry& entry) { return entry.runner == runner; };
    if (static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), own)) > most) {
      dropped.push_back(remove(std::prev(std::find_if(entries_.rbegin(), entries_.rend(), own).base())));
    }
    std::size_t of_graph = 0;
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const auto at = entry++;
      if (at->runner->graph_ != runner->graph_ || (runner->graph_ == 0 && at->runner != runner)) continue;
      of_graph += at->frame->arena.capacity();
      if (at->runner != runner && of_graph > kGraphBytes) dropped.push_back(remove(at));
    }
    while (entries_.size() > kLatestArenas && (bytes_ > kOlderBytes || entries_.size() > kMostArenas)) {
      dropped.push_back(remove(std::prev(entries_.end())));
    }
  }

  // The runner is going.
  void forget(const ProgramRunner* runner) {
    while (take(runner) != nullptr) {
    }
  }

 private:
  struct Entry {
    const ProgramRunner* runner;
    std::unique_ptr<Frame> frame;
  };

  std::unique_ptr<Frame> remove(std::list<Entry>::iterator entry) {
    std::unique_ptr<Frame> frame = std::move(entry->frame);
    bytes_ -= frame->arena.capacity();
    entries_.erase(entry);
    return frame;
  }

  ForkSafeMutex mutex_{Rank::kIdleArenas};
  std::list<Entry> entries_;
  std::size_t bytes_ = 0;
};

ProgramRunner::ProgramRunner(std::shared_ptr<const BoundProgram> program, int threads,
                             std::size_t idle_arenas, std::string name, std::string category,
                             Schedule schedule)
    : program_(std::move(program)),
      threads_(std::clamp(threads, 1, machine_cores())),
      idle_arenas_(idle_arenas),
      name_(std::move(name)),
      category_(std::move(category)) {
  const std::vector<Level>& levels = program_->levels();
  for (const Level& level : levels) instructions_ += level.size();
  const auto final_in = final_outputs(levels);
  std::vector<std::size_t> announced;  // outputs, of which each has a step behind the instructions'
  std::vector<Chunk> first;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    // Threads share each instruction, not the level: where the rows of an image were split before, they are here.
    std::vector<std::vector<Chunk>> shares(threads_);
    const int width = width_of(levels[i], threads_);
    for (const Instruction& instruction : levels[i]) {
      const std::int64_t tasks = instruction.tasks;
      const std::int64_t count = std::min(tasks, width == 1 ? 1 : kChunksPerThread * width);
      for (std::int64_t j = 0; j < count; ++j) {
        shares[j * threads_ / count].push_back({steps_.size(), tasks * j / count, tasks * (j + 1) / count});
      }
      add_step(instruction);
      if (schedule == Schedule::kOneByOne) add_level(&shares, &first, width, schedule);
    }
    if (schedule == Schedule::kOneByOne) continue;
    add_level(&shares, &first, width, schedule);
    if (i + 1 == levels.size()) {
      for (const Chunk& chunk : first) final_at_end_.push_back(announced[chunk.step - instructions_]);
      final_at_end_.insert(final_at_end_.end(), final_in[i].begin(), final_in[i].end());
      break;
    }
    for (std::size_t output : final_in[i]) {
      first.push_back({instructions_ + announced.size(), 0, 1});
      announced.push_back(output);
    }
  }
  for (std::size_t output : announced) add_step({"announce", announce, {{Space::kOutput, output, 0}}, {}, {}, 1});
}

void ProgramRunner::add_step(const Instruction& instruction) {
  steps_.push_back({instruction.kernel, operand_count_, instruction.ints.data(), instruction.floats.data()});
  for (const Operand& operand : instruction.operands) {
    const bool fixed = operand.space == Space::kArena || operand.space == Space::kConstant;
    (fixed ? fixed_ : patches_).push_back({operand_count_++, operand});
  }
}

ProgramRunner::~ProgramRunner() { IdleFrames::instance().forget(this); }

void ProgramRunner::add_level(std::vector<std::vector<Chunk>>* shares, std::vector<Chunk>* first, int width,
                              Schedule schedule) {
  std::vector<Chunk> chunks;
  for (std::vector<Chunk>& share : *shares) {
    chunks.insert(chunks.end(), share.begin(), share.end());
    share.clear();
  }
  // One-by-one keeps even an empty instruction's phase, so that phases and instructions match.
  if (chunks.empty() && schedule == Schedule::kByLevel) return;
  const bool serial = chunks.size() <= 1 || width == 1;
  widest_ = std::max(widest_, static_cast<int>(std::min<std::size_t>(width, serial ? 1 : chunks.size())));
  chunks.insert(chunks.begin(), first->begin(), first->end());
  first->clear();
  const bool joins = serial && schedule == Schedule::kByLevel && !phases_.empty() && phases_.back().serial;
  if (joins) {
    std::vector<Chunk>& before = phases_.back().chunks;
    before.insert(before.end(), chunks.begin(), chunks.end());
  } else {
    phases_.push_back({serial, std::move(chunks)});
  }
}

std::unique_ptr<ProgramRunner::Frame> ProgramRunner::take_frame() {
  if (std::unique_ptr<Frame> idle = IdleFrames::instance().take(this)) return idle;
  auto frame = std::make_unique<Frame>();
  frame->arena = new_arena();
  frame->operands.resize(operand_count_);
  for (const Patch& patch : fixed_) {
    const bool arena = patch.source.space == Space::kArena;
    // Kernels take all their operands as memory that they may write to; what they write is never a constant.
    char* base = arena ? frame->arena.data() : const_cast<char*>(program_->constants()[patch.source.index].data);
    frame->operands[patch.operand] = base + patch.source.offset;
  }
  return frame;
}

// Memory that was in use is taken rather than new: the system takes a microsecond and more for each page.
AlignedBuffer ProgramRunner::new_arena() const {
  const std::size_t bytes = program_->arena_bytes();
  AlignedBuffer arena = bytes < AlignedBuffer::kMapped ? AlignedBuffer() : IdleFrames::instance().take_over(this);
  if (arena.data() == nullptr) return AlignedBuffer(bytes);
  const std::size_t used = std::min(arena.capacity(), bytes);
  arena.grow(bytes);
  if (!program_->zeroing()) {
    std::memset(arena.data(), 0, used);
    return arena;
  }
  for (const Instruction& each : *program_->zeroing()) {
    std::vector<char*> operands;
    for (const Operand& operand : each.operands) operands.push_back(arena.data() + operand.offset);
    each.kernel(operands.data(), each.ints.data(), each.floats.data(), 0, each.tasks);
  }
  return arena;
}

void ProgramRunner::give_back(std::unique_ptr<Frame> frame) {
  if (idle_arenas_ > 0) IdleFrames::instance().put(this, std::move(frame), idle_arenas_);
}

void ProgramRunner::bind(Frame* frame, const Bindings& bindings) const {
  for (const Patch& patch : patches_) {
    char* base = bindings.prepared;
    if (patch.source.space == Space::kInput) base = bindings.inputs[patch.source.index];
    if (patch.source.space == Space::kOutput) base = bindings.outputs[patch.source.index];
    frame->operands[patch.operand] = base + patch.source.offset;
  }
}

void ProgramRunner::run(const Bindings& bindings, std::vector<double>* seconds, const AfterStep* after) {
  std::unique_ptr<Frame> frame = take_frame();
  bind(frame.get(), bindings);
  frame->traced = trace::enabled();
  if (frame->traced) {
    const std::uint32_t label = trace_labels();
    frame->call = trace::next_call();
    frame->first_label = label + 1;
    const std::int64_t begin = trace::now();
    run_on_frame(frame.get(), seconds, after);
    trace::record({begin, trace::now(), 1, frame->call, label, 0});
  } else {
    run_on_frame(frame.get(), seconds, after);
  }
  for (std::size_t output : final_at_end_) announce_result(bindings.outputs[output]);
  give_back(std::move(frame));
}

void ProgramRunner::run_on_frame(Frame* frame, std::vector<double>* seconds, const AfterStep* after) {
  if (seconds != nullptr) seconds->resize(phases_.size());
  const bool chooses = widest_ > 1 && seconds == nullptr;
  const bool asleep = chooses && team_sleeps();
  const bool alone = chooses && choice_.alone(asleep);
  const double begin = chooses ? now() : 0;
  Run work(this, frame, seconds, after);
  run_on_team(alone ? 1 : widest_, &work);
  if (chooses) choice_.learn(asleep, alone, now() - begin);
}

std::uint32_t ProgramRunner::trace_labels() {
  std::call_once(labelled_, [this] {
    std::vector<trace::Label> labels{{name_, category_, "", 0, 0, 1}};
    for (const Level& level : program_->levels()) {
      for (const Instruction& i : level) {
        labels.push_back({i.name, "kernel", i.origin, i.operations, i.bytes, i.tasks});
      }
    }
    first_label_ = trace::add_labels(labels);
  });
  return first_label_;
}

void ProgramRunner::run_chunk(const Chunk& chunk, Frame* frame) const {
  const Step& step = steps_[chunk.step];
  char* const* operands = frame->operands.data() + step.first_operand;
  const bool traced = frame->traced && chunk.step < instructions_;
  const std::int64_t begin = traced ? trace::now() : 0;
  step.kernel(operands, step.ints, step.floats, chunk.begin, chunk.end);
  if (traced) {
    const auto label = static_cast<std::uint32_t>(frame->first_label + chunk.step);
    trace::record({begin, trace::now(), chunk.end - chunk.begin, frame->call, label, 0});
  }
}

}  // namespace ngraph_mxnet
