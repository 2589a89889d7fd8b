#include "program_template.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "memory_plan.h"

namespace ngraph_mxnet {
namespace {

using Slots = std::vector<std::int64_t>;
constexpr std::int64_t kMost = std::int64_t{1} << 46;  // no size is larger (MOST in params/record.py)
constexpr std::int64_t kTensors = 4;                   // rows of a pixel table

std::int32_t offset32(std::int64_t offset) {
  if (offset > std::numeric_limits<std::int32_t>::max() || offset < std::numeric_limits<std::int32_t>::min()) {
    throw std::invalid_argument("a contraction's tables hold 32-bit byte offsets; the tensor spans over 2 GiB");
  }
  return static_cast<std::int32_t>(offset);
}

std::int64_t counted(std::int64_t count) {
  if (count < 0 || count > kMost) throw std::invalid_argument("a size of " + std::to_string(count));
  return count;
}

// As `pixel_table` in microkernels/tables.py.
AlignedBuffer pixel_table(const Slots& n) {
  const std::int64_t height = n[0], width = n[1], images = n[2], pixels = counted(height * width * images);
  AlignedBuffer table(kTensors * pixels * sizeof(std::int32_t));
  auto* entries = reinterpret_cast<std::int32_t*>(table.data());
  for (std::int64_t tensor = 0; tensor < kTensors; ++tensor) {
    const std::int64_t row = n[7 + 3 * tensor], pixel = n[8 + 3 * tensor], image = n[9 + 3 * tensor];
    const std::int64_t down = tensor == 0 ? n[3] : 1, right = tensor == 0 ? n[4] : 1;
    const std::int64_t top = tensor == 0 ? n[5] : 0, left = tensor == 0 ? n[6] : 0;
    offset32((images - 1) * image + ((height - 1) * down - top) * row + ((width - 1) * right - left) * pixel);
    offset32(-top * row - left * pixel);
    for (std::int64_t i = 0; i < images; ++i) {
      for (std::int64_t h = 0; h < height; ++h) {
        const std::int64_t begin = i * image + (h * down - top) * row - left * pixel;
        for (std::int64_t w = 0; w < width; ++w) *entries++ = static_cast<std::int32_t>(begin + w * right * pixel);
      }
    }
  }
  return table;
}

// As `step_table`.
AlignedBuffer step_table(const Slots& n) {
  const std::int64_t channels = n[0], channel_stride = n[1], lanes = n[2], kernel_h = n[3], kernel_w = n[4];
  const std::int64_t down = n[5] * n[9], right = n[6] * n[10], slices = n[7], slice_stride = n[8];
  AlignedBuffer table(counted(channels * slices * kernel_h * kernel_w) * sizeof(std::int32_t));
  auto* entries = reinterpret_cast<std::int32_t*>(table.data());
  for (std::int64_t c = 0; c < channels; ++c) {
    const std::int64_t channel = c / lanes * channel_stride + c % lanes * 4;
    for (std::int64_t s = 0; s < slices; ++s) {
      for (std::int64_t h = 0; h < kernel_h; ++h) {
        for (std::int64_t w = 0; w < kernel_w; ++w) *entries++ = offset32(channel + s * slice_stride + h * down + w * right);
      }
    }
  }
  return table;
}

// An instruction at given sizes.
struct Made {
  const TemplateInstruction* of;
  std::vector<std::int64_t> ints, offsets;
  std::int64_t tasks, operations, bytes;
  std::vector<std::size_t> waits;
  std::int64_t level = 0;
};

// Without bytes that are in several.
std::vector<ArenaSpan> merged(std::vector<ArenaSpan> spans) {
  std::sort(spans.begin(), spans.end(), [](const ArenaSpan& a, const ArenaSpan& b) { return a.offset < b.offset; });
  std::vector<ArenaSpan> found;
  for (const ArenaSpan& span : spans) {
    if (!found.empty() && span.offset <= found.back().offset + found.back().bytes) {
      ArenaSpan& last = found.back();
      last.bytes = std::max(last.offset + last.bytes, span.offset + span.bytes) - last.offset;
    } else {
      found.push_back(span);
    }
  }
  return found;
}

class Binding {
 public:
  Binding(const TemplateCode& code, Slots slots) : code_(code), slots_(std::move(slots)) {}

  std::shared_ptr<Program> program() {
    expand();
    assign_levels();
    levels_.resize(1 + highest());
    for (std::size_t i = 0; i < made_.size(); ++i) levels_[made_[i].level].push_back(&made_[i]);
    plan();
    return write();
  }

 private:
  Made make(const TemplateInstruction& of) const {
    Made made{&of, {}, {}, slots_[of.tasks], slots_[of.operations], slots_[of.bytes], {}};
    made.ints.reserve(of.ints.size());
    for (const Slot slot : of.ints) made.ints.push_back(slots_[slot]);
    made.offsets.reserve(of.operands.size());
    for (const TemplateOperand& operand : of.operands) made.offsets.push_back(slots_[operand.offset]);
    return made;
  }

  // All that there is something to do of, loops written out.
  void expand() {
    copies_.resize(code_.instructions.size());
    for (std::size_t begin = 0; begin < code_.instructions.size();) {
      const std::int64_t loop = code_.instructions[begin].loop;
      std::size_t end = begin + 1;
      while (loop >= 0 && end < code_.instructions.size() && code_.instructions[end].loop == loop) ++end;
      const std::int64_t rounds = loop < 0 ? 1 : counted(slots_[code_.loops[loop].count]);
      std::vector<std::int64_t> before(end - begin, -1), now(end - begin, -1);
      for (std::int64_t round = 0; round < rounds; ++round) {
        if (loop >= 0) {
          slots_[code_.loops[loop].index] = round;
          code_.sizes.evaluate(1 + loop, &slots_);
        }
        std::fill(now.begin(), now.end(), -1);
        for (std::size_t i = begin; i < end; ++i) {
          const TemplateInstruction& of = code_.instructions[i];
          if (slots_[of.tasks] == 0) continue;
          Made made = make(of);
          for (const std::size_t other : of.waits) {
            if (other >= begin && now[other - begin] >= 0) {
              made.waits.push_back(now[other - begin]);
            } else {
              made.waits.insert(made.waits.end(), copies_[other].begin(), copies_[other].end());
            }
          }
          for (const std::size_t other : of.carried) {
            if (before[other - begin] >= 0) made.waits.push_back(before[other - begin]);
          }
          now[i - begin] = static_cast<std::int64_t>(made_.size());
          made_.push_back(std::move(made));
        }
        before = now;
        for (std::size_t i = begin; i < end; ++i) {
          if (now[i - begin] >= 0) copies_[i].push_back(now[i - begin]);
        }
      }
      begin = end;
    }
  }

  std::int64_t after(const Made& made) const {
    std::int64_t level = 0;
    for (const std::size_t writer : made.waits) level = std::max(level, 1 + made_[writer].level);
    return level;
  }

  // As planning/schedule.py does.
  void assign_levels() {
    if (code_.branches > 0) {
      assign_branches();
      return;
    }
    for (Made& made : made_) made.level = after(made);
    std::vector<char> all(made_.size(), 1), waiting(made_.size(), 0);
    const std::vector<std::int64_t> last = latest(all);
    for (std::size_t i = 0; i < made_.size(); ++i) {
      const auto waits = [&](std::size_t writer) { return waiting[writer] != 0; };
      waiting[i] = last[i] > made_[i].level && std::all_of(made_[i].waits.begin(), made_[i].waits.end(), waits);
    }
    const std::vector<std::int64_t> moved = latest(waiting);
    for (std::size_t i = 0; i < made_.size(); ++i) made_[i].level = moved[i];
  }

  std::vector<std::int64_t> latest(const std::vector<char>& moves) const {
    std::vector<std::int64_t> first(made_.size(), -1), found(made_.size());
    for (std::size_t i = made_.size(); i-- > 0;) {
      found[i] = moves[i] && first[i] >= 0 ? first[i] - 1 : made_[i].level;
      for (const std::size_t writer : made_[i].waits) {
        first[writer] = first[writer] < 0 ? found[i] : std::min(first[writer], found[i]);
      }
    }
    return found;
  }

  void assign_branches() {
    std::vector<std::vector<std::int64_t>> nodes;  // in each level
    std::int64_t node = -1, first = 0, highest = -1;
    for (Made& made : made_) {
      const std::int64_t own = made.of->node;
      if (code_.branches == 1 && own != node) {
        node = own;
        first = highest + 1;
      }
      std::int64_t level = std::max(first, after(made));
      for (;; ++level) {
        nodes.resize(std::max<std::size_t>(nodes.size(), level + 1));
        const std::vector<std::int64_t>& there = nodes[level];
        const bool mine = std::find(there.begin(), there.end(), own) != there.end();
        if (static_cast<std::int64_t>(there.size()) - (mine ? 1 : 0) < code_.branches) {
          if (!mine) nodes[level].push_back(own);
          break;
        }
      }
      made.level = level;
      highest = std::max(highest, level);
    }
  }

  std::int64_t highest() const {
    std::int64_t level = -1;
    for (const Made& made : made_) level = std::max(level, made.level);
    return level;
  }

  void plan() {
    std::vector<std::int64_t> place(code_.buffers.size(), -1);
    std::vector<std::size_t> buffers;
    std::vector<Lifetime> lives;
    bool zeroed = false;
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      for (const Made* made : levels_[level]) {
        for (const TemplateOperand& operand : made->of->operands) {
          if (operand.space != Space::kArena) continue;
          if (place[operand.index] < 0) {
            const TemplateBuffer& buffer = code_.buffers[operand.index];
            place[operand.index] = static_cast<std::int64_t>(lives.size());
            lives.push_back({counted(slots_[buffer.bytes]), static_cast<std::int64_t>(level), 0, buffer.region});
            buffers.push_back(operand.index);
            zeroed = zeroed || buffer.zeroing >= 0;
          }
          lives[place[operand.index]].last = static_cast<std::int64_t>(level);
        }
      }
    }
    MemoryPlan found = plan_memory(lives);
    if (zeroed) {
      std::vector<Lifetime> shared = lives;
      for (std::size_t i = 0; i < shared.size(); ++i) {
        if (code_.buffers[buffers[i]].zeroing >= 0) shared[i].region = -1;
      }
      MemoryPlan other = plan_memory(shared);
      if (found.total - other.total >= code_.sharing_gain) {
        found = std::move(other);
        for (std::size_t i = 0; i < lives.size(); ++i) {
          const std::int64_t zeroing = code_.buffers[buffers[i]].zeroing;
          if (zeroing < 0) continue;
          zeroing_.push_back(std::make_unique<Made>(make(code_.zeroing[zeroing])));
          levels_[lives[i].first].push_back(zeroing_.back().get());
        }
      }
    }
    for (std::size_t i = 0; i < lives.size(); ++i) {
      const TemplateBuffer& buffer = code_.buffers[buffers[i]];
      if (buffer.region < 0 || (buffer.zeroing >= 0 && !zeroing_.empty())) continue;
      zeros_.push_back({static_cast<std::size_t>(found.offsets[i]), static_cast<std::size_t>(lives[i].bytes)});
    }
    arena_bytes_ = found.total;
    offsets_.assign(code_.buffers.size(), 0);
    for (std::size_t i = 0; i < buffers.size(); ++i) offsets_[buffers[i]] = found.offsets[i];
  }

  std::shared_ptr<Program> write() {
    struct Owned {
      std::vector<AlignedBuffer> tables;
      std::shared_ptr<const void> shared;
    };
    const auto owned = std::make_shared<Owned>();
    owned->shared = code_.owner;
    std::vector<std::int64_t> places(code_.constants.size(), -1);
    std::vector<Constant> constants;
    const auto constant = [&](std::size_t index) {
      if (places[index] >= 0) return static_cast<std::size_t>(places[index]);
      const TemplateConstant& of = code_.constants[index];
      if (of.kind == TemplateConstant::Kind::kFixed) {
        constants.push_back(of.fixed);
      } else {
        Slots numbers;
        for (const Slot slot : of.numbers) numbers.push_back(slots_[slot]);
        const bool pixels = of.kind == TemplateConstant::Kind::kPixels;
        const AlignedBuffer& table = owned->tables.emplace_back(pixels ? pixel_table(numbers) : step_table(numbers));
        constants.push_back({table.data(), table.size()});
      }
      places[index] = static_cast<std::int64_t>(constants.size()) - 1;
      return constants.size() - 1;
    };
    std::vector<Level> levels;
    for (const std::vector<const Made*>& from : levels_) {
      if (from.empty()) continue;
      Level& level = levels.emplace_back();
      for (const Made* made : from) {
        Instruction& to = level.emplace_back();
        to.name = made->of->name;
        to.kernel = made->of->kernel;
        for (std::size_t i = 0; i < made->offsets.size(); ++i) {
          const TemplateOperand& operand = made->of->operands[i];
          const bool arena = operand.space == Space::kArena;
          const std::int64_t offset = made->offsets[i] + (arena ? offsets_[operand.index] : 0);
          const std::size_t index = operand.space == Space::kConstant ? constant(operand.index) : arena ? 0 : operand.index;
          to.operands.push_back({operand.space, index, static_cast<std::size_t>(counted(offset))});
        }
        to.ints = made->ints;
        to.floats = made->of->floats;
        to.tasks = made->tasks;
        to.origin = made->of->origin;
        to.operations = static_cast<double>(made->operations);
        to.bytes = static_cast<double>(made->bytes);
      }
    }
    auto program = std::make_shared<Program>(std::move(levels), static_cast<std::size_t>(arena_bytes_),
                                             std::move(constants), owned);
    program->set_zeros(merged(std::move(zeros_)));
    return program;
  }

  const TemplateCode& code_;
  Slots slots_;
  std::vector<Made> made_;
  std::vector<std::vector<std::size_t>> copies_;
  std::vector<std::vector<const Made*>> levels_;
  std::vector<std::unique_ptr<Made>> zeroing_;
  std::vector<std::int64_t> offsets_;  // of the buffers
  std::vector<ArenaSpan> zeros_;
  std::int64_t arena_bytes_ = 0;
};

// Of templates that MXNet has nothing to do with, odd numbers as those of CompileCache are.
std::atomic<std::uint64_t> next_graph{1};

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument("a Program for a range of sizes: " + why); }

// Everything that an index names is there.
void check(const TemplateCode& code) {
  const auto slot = [&](Slot each) {
    if (each >= code.sizes.slots()) refuse("slot " + std::to_string(each) + " does not exist");
  };
  const auto below = [](std::int64_t index, std::size_t count, const char* what) {
    if (index < 0 || index >= static_cast<std::int64_t>(count)) refuse(what + (" " + std::to_string(index)) + " does not exist");
  };
  const auto instruction = [&](const TemplateInstruction& each, std::size_t own) {
    if (each.kernel == nullptr) refuse("instruction '" + each.name + "' has no kernel");
    for (const TemplateOperand& operand : each.operands) {
      slot(operand.offset);
      if (operand.space == Space::kArena) below(operand.index, code.buffers.size(), "buffer");
      if (operand.space == Space::kConstant) below(operand.index, code.constants.size(), "constant");
      if (operand.space == Space::kInput) below(operand.index, code.inputs.size(), "input");
      if (operand.space == Space::kOutput) below(operand.index, code.outputs.size(), "output");
    }
    for (const Slot number : each.ints) slot(number);
    for (const Slot number : {each.tasks, each.operations, each.bytes}) slot(number);
    for (const std::size_t other : each.waits) below(other, own, "instruction");
    if (each.loop >= 0) below(each.loop, code.loops.size(), "loop");
  };
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    instruction(code.instructions[i], i);
    for (const std::size_t other : code.instructions[i].carried) {
      below(other, code.instructions.size(), "instruction");
      if (code.instructions[i].loop < 0 || code.instructions[other].loop != code.instructions[i].loop) {
        refuse("what is waited for is of another loop");
      }
    }
  }
  std::vector<char> over(code.loops.size(), 0);
  for (std::size_t i = 0; i < code.instructions.size(); ++i) {
    const std::int64_t loop = code.instructions[i].loop, next = i + 1 < code.instructions.size() ? code.instructions[i + 1].loop : -1;
    if (loop < 0) continue;
    if (over[loop]) refuse("a loop is interrupted");
    over[loop] = next != loop;
  }
  for (const TemplateInstruction& each : code.zeroing) instruction(each, 0);
  for (const TemplateLoop& loop : code.loops) {
    slot(loop.count);
    if (loop.index < code.bounds.size() || loop.index >= code.sizes.symbols()) refuse("a loop counts with no symbol of its own");
  }
  for (const TemplateBuffer& buffer : code.buffers) {
    slot(buffer.bytes);
    if (buffer.zeroing >= 0) below(buffer.zeroing, code.zeroing.size(), "zeroing");
  }
  for (const TemplateConstant& constant : code.constants) {
    const std::size_t numbers = constant.kind == TemplateConstant::Kind::kPixels  ? 7 + 3 * kTensors
                                : constant.kind == TemplateConstant::Kind::kSteps ? 11
                                                                                  : 0;
    if (constant.numbers.size() != numbers) refuse("a table of " + std::to_string(constant.numbers.size()) + " numbers");
    for (const Slot number : constant.numbers) slot(number);
  }
  for (const TemplateGuard& guard : code.guards) slot(guard.slot);
  for (const std::vector<TemplateSpec>* specs : {&code.inputs, &code.outputs}) {
    for (const TemplateSpec& spec : *specs) {
      for (const Slot size : spec.shape) slot(size);
    }
  }
}

}  // namespace

ProgramTemplate::ProgramTemplate(TemplateCode code, std::shared_ptr<Preparation> preparation, int threads,
                                 std::string name)
    : code_(std::move(code)),
      preparation_(std::move(preparation)),
      threads_(threads),
      name_(std::move(name)),
      graph_(next_graph.fetch_add(2)) {
  check(code_);
}

bool ProgramTemplate::unify(const std::vector<std::vector<std::int64_t>>& shapes, Slots* slots) const {
  const std::size_t symbols = code_.bounds.size();
  std::vector<char> known(symbols, 0);
  if (shapes.size() != code_.inputs.size()) return false;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::vector<Slot>& wanted = code_.inputs[i].shape;
    if (shapes[i].size() != wanted.size()) return false;
    for (std::size_t axis = 0; axis < wanted.size(); ++axis) {
      if (wanted[axis] >= symbols || known[wanted[axis]]) continue;
      const TemplateBounds& bounds = code_.bounds[wanted[axis]];
      if (shapes[i][axis] < bounds.low || shapes[i][axis] > bounds.high) return false;
      (*slots)[wanted[axis]] = shapes[i][axis];
      known[wanted[axis]] = 1;
    }
  }
  if (std::find(known.begin(), known.end(), 0) != known.end()) return false;
  code_.sizes.evaluate(0, slots);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (std::size_t axis = 0; axis < shapes[i].size(); ++axis) {
      if ((*slots)[code_.inputs[i].shape[axis]] != shapes[i][axis]) return false;
    }
  }
  return std::all_of(code_.guards.begin(), code_.guards.end(),
                     [&](const TemplateGuard& guard) { return (*slots)[guard.slot] == guard.value; });
}

std::vector<TensorSpec> ProgramTemplate::specs(const std::vector<TemplateSpec>& of, const Slots& slots) const {
  std::vector<TensorSpec> found;
  for (const TemplateSpec& spec : of) {
    std::vector<std::int64_t> shape;
    for (const Slot size : spec.shape) shape.push_back(counted(slots[size]));
    found.emplace_back(spec.element, std::move(shape));
  }
  return found;
}

std::shared_ptr<Executable> ProgramTemplate::bind(const std::vector<std::vector<std::int64_t>>& shapes) const {
  Slots slots(code_.sizes.slots());
  if (!unify(shapes, &slots)) return nullptr;
  std::shared_ptr<Program> program = Binding(code_, slots).program();
  auto made = std::make_shared<Executable>(std::move(program), preparation_, specs(code_.inputs, slots),
                                           specs(code_.outputs, slots), threads_, name_);
  made->set_graph(graph_.load());
  made->set_for_shapes([self = shared_from_this()](const auto& others) { return self->bind(others); }, this);
  return made;
}

}  // namespace ngraph_mxnet
