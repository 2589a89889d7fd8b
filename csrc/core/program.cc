#include "core/program.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/aligned_buffer.h"

namespace ngraph_mxnet {

namespace {

[[noreturn]] void refuse(const std::string& why) { throw std::invalid_argument("a Program: " + why); }

}  // namespace

void check_program(const Program& code) {
  const auto slot = [&](Slot each) {
    if (each >= code.sizes.slots()) refuse("slot " + std::to_string(each) + " does not exist");
  };
  const auto below = [](std::int64_t index, std::size_t count, const char* what) {
    if (index < 0 || index >= static_cast<std::int64_t>(count)) {
      refuse(what + (" " + std::to_string(index)) + " does not exist");
    }
  };
  const auto instruction = [&](const SymbolicInstruction& each, std::size_t own) {
    if (each.kernel == nullptr) refuse("instruction '" + each.name + "' has no kernel");
    for (const SymbolicOperand& operand : each.operands) {
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
    const std::int64_t loop = code.instructions[i].loop,
                       next = i + 1 < code.instructions.size() ? code.instructions[i + 1].loop : -1;
    if (loop < 0) continue;
    if (over[loop]) refuse("a loop is interrupted");
    over[loop] = next != loop;
  }
  for (const SymbolicInstruction& each : code.zeroing) {
    instruction(each, 0);
    for (const SymbolicOperand& operand : each.operands) {
      if (operand.space != Space::kArena) refuse("what is zeroed is not of the arena");
    }
  }
  for (const SymbolicLoop& loop : code.loops) {
    slot(loop.count);
    if (loop.index < code.bounds.size() || loop.index >= code.sizes.symbols()) {
      refuse("a loop counts with no symbol of its own");
    }
  }
  for (const SymbolicBuffer& buffer : code.buffers) {
    slot(buffer.bytes);
    if (buffer.zeroing >= 0) below(buffer.zeroing, code.zeroing.size(), "zeroing");
  }
  for (const SymbolicConstant& constant : code.constants) {
    if (constant.numbers.size() != (constant.table == nullptr ? 0 : constant.table->numbers)) {
      refuse("a table of " + std::to_string(constant.numbers.size()) + " numbers");
    }
    for (const Slot number : constant.numbers) slot(number);
  }
  for (const SymbolicGuard& guard : code.guards) slot(guard.slot);
  for (const std::vector<SymbolicSpec>* specs : {&code.inputs, &code.outputs}) {
    for (const SymbolicSpec& spec : *specs) {
      for (const Slot size : spec.shape) slot(size);
    }
  }
}

namespace {

// A buffer from level `first` to level `last`, both included. Buffers share memory only within a region: images of one
// geometry with a zero halo make one, and leave the halo's bytes alone, so that zeros written once stay.
struct Lifetime {
  std::int64_t bytes;
  std::int64_t first, last;
  std::int64_t region;
};

// Levels: buffers that live for fewer are found by level, others are looked through.
constexpr std::int64_t kShortLife = 8;

struct MemoryPlan {
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;
};

// One region follows the other. Greedy by size: offline allocation is NP-hard, and this order is within a few percent
// of the lower bound on networks' graphs.
MemoryPlan plan_memory(const std::vector<Lifetime>& wanted);

// The most bytes alive at one level: no plan can be smaller.
std::int64_t peak_bytes(const std::vector<Lifetime>& lives);

// With memory of its own for each.
std::int64_t separate_bytes(const std::vector<Lifetime>& lives);

constexpr std::int64_t kStep = kAlignment;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kStep - 1) / kStep * kStep; }

using Span = std::pair<std::int64_t, std::int64_t>;  // begin and end

// Buffers that have their place. Most live for a few levels. Those are found by level, neighbours as one, so that a
// plan for thousands takes no time for each pair of them.
class Placed {
 public:
  void add(const Lifetime& life, Span span) {
    const Held held{span, life.first, life.last};
    if (life.last - life.first < kShortLife) {
      for (std::int64_t level = life.first; level <= life.last; ++level) fill(&short_[level], span);
    } else {
      insert(&long_, held);
    }
    insert(&all_, held);
  }

  // Returns the spans of placed buffers that live when `life` does, sorted. Neighbouring spans may come as one.
  const std::vector<Span>& met_by(const Lifetime& life) {
    const bool is_short = life.last - life.first < kShortLife;
    met_.clear();
    for (const Held& held : is_short ? long_ : all_) {
      if (held.first <= life.last && life.first <= held.last) met_.push_back(held.span);
    }
    if (!is_short) return met_;
    for (std::int64_t level = life.first; level <= life.last; ++level) {
      const auto found = short_.find(level);
      if (found != short_.end()) met_.insert(met_.end(), found->second.begin(), found->second.end());
    }
    std::sort(met_.begin(), met_.end());
    return met_;
  }

 private:
  struct Held {
    Span span;
    std::int64_t first, last;

    bool operator<(const Held& other) const { return span < other.span; }
  };

  static void insert(std::vector<Held>* into, const Held& held) {
    into->insert(std::upper_bound(into->begin(), into->end(), held), held);
  }

  // Adds what lies in a gap, or at an end.
  static void fill(std::vector<Span>* taken, Span span) {
    auto at = std::lower_bound(taken->begin(), taken->end(), span);
    if (at != taken->end() && at->first == span.second) {
      span.second = at->second;
      at = taken->erase(at);
    }
    if (at != taken->begin() && std::prev(at)->second == span.first) {
      span.first = std::prev(at)->first;
      at = taken->erase(std::prev(at));
    }
    taken->insert(at, span);
  }

  std::unordered_map<std::int64_t, std::vector<Span>> short_;  // by each of their levels
  std::vector<Held> long_, all_;
  std::vector<Span> met_;
};

// The largest buffer first, each at the lowest gap among those it meets. Returns the region's size.
std::int64_t place(const std::vector<Lifetime>& wanted, std::vector<std::size_t> members, std::int64_t base,
                   std::vector<std::int64_t>* offsets) {
  std::stable_sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
    return wanted[a].bytes != wanted[b].bytes ? wanted[a].bytes > wanted[b].bytes : wanted[a].first < wanted[b].first;
  });
  Placed placed;
  std::int64_t total = 0;
  for (const std::size_t number : members) {
    const std::int64_t size = aligned(wanted[number].bytes);
    std::int64_t start = 0;
    for (const auto& [begin, end] : placed.met_by(wanted[number])) {
      if (begin - start >= size) break;
      start = std::max(start, end);
    }
    (*offsets)[number] = base + start;
    placed.add(wanted[number], {start, start + size});
    total = std::max(total, start + size);
  }
  return total;
}

MemoryPlan plan_memory(const std::vector<Lifetime>& wanted) {
  std::vector<std::vector<std::size_t>> regions;
  std::unordered_map<std::int64_t, std::size_t> places;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto [found, is_new] = places.emplace(wanted[i].region, regions.size());
    if (is_new) regions.emplace_back();
    regions[found->second].push_back(i);
  }
  MemoryPlan plan;
  plan.offsets.resize(wanted.size());
  for (std::vector<std::size_t>& members : regions) {
    plan.total += place(wanted, std::move(members), plan.total, &plan.offsets);
  }
  return plan;
}

std::int64_t peak_bytes(const std::vector<Lifetime>& lives) {
  std::map<std::int64_t, std::int64_t> changes;  // at the begin of a level
  for (const Lifetime& life : lives) {
    changes[life.first] += aligned(life.bytes);
    changes[life.last + 1] -= aligned(life.bytes);
  }
  std::int64_t alive = 0, most = 0;
  for (const auto& [level, change] : changes) most = std::max(most, alive += change);
  return most;
}

std::int64_t separate_bytes(const std::vector<Lifetime>& lives) {
  std::int64_t total = 0;
  for (const Lifetime& life : lives) total += aligned(life.bytes);
  return total;
}

using Slots = std::vector<std::int64_t>;

// Limit on the steps of a binding, so that a binding ends whatever a file asks for.
class Budget {
 public:
  explicit Budget(std::size_t steps) : left_(steps) {}

  void spend(std::size_t steps) {
    if (steps > left_) throw std::invalid_argument("at these sizes there would be more instructions than in any model");
    left_ -= steps;
  }

 private:
  std::size_t left_;
};

// An instruction at given sizes.
struct Made {
  const SymbolicInstruction* of;
  std::vector<std::int64_t> ints, offsets;
  std::int64_t tasks, operations, bytes;
  std::vector<std::size_t> waits;
  std::int64_t level = 0;
};

class Binding {
 public:
  Binding(const Program& code, Slots slots, std::size_t most_steps)
      : code_(code), slots_(std::move(slots)), budget_(most_steps) {
    expand();
    assign_levels();
    gather();
    plan();
  }

  std::shared_ptr<BoundProgram> program() && { return write(); }

  Plan told() const {
    Plan told{{}, offsets_, zeroed_, arena_bytes_, peak_, separate_};
    for (const std::vector<std::size_t>& copies : copies_) {
      told.levels.push_back(copies.empty() ? -1 : made_[copies[0]].level);
    }
    return told;
  }

 private:
  Made make(const SymbolicInstruction& of) const {
    Made made{&of, {}, {}, slots_[of.tasks], slots_[of.operations], slots_[of.bytes], {}};
    made.ints.reserve(of.ints.size());
    for (const Slot slot : of.ints) made.ints.push_back(slots_[slot]);
    made.offsets.reserve(of.operands.size());
    for (const SymbolicOperand& operand : of.operands) made.offsets.push_back(slots_[operand.offset]);
    return made;
  }

  // All that there is something to do of, loops written out.
  void expand() {
    copies_.resize(code_.instructions.size());
    made_.reserve(code_.instructions.size());
    std::vector<std::int64_t> before, now;
    for (std::size_t begin = 0; begin < code_.instructions.size();) {
      const std::int64_t loop = code_.instructions[begin].loop;
      std::size_t end = begin + 1;
      while (loop >= 0 && end < code_.instructions.size() && code_.instructions[end].loop == loop) ++end;
      const std::int64_t rounds = loop < 0 ? 1 : counted(slots_[code_.loops[loop].count]);
      const std::size_t round_steps = end - begin + (loop < 0 ? 0 : code_.sizes.steps(1 + loop));
      before.assign(end - begin, -1);
      now.assign(end - begin, -1);
      for (std::int64_t round = 0; round < rounds; ++round) {
        budget_.spend(round_steps);
        if (loop >= 0) {
          slots_[code_.loops[loop].index] = round;
          code_.sizes.evaluate(1 + loop, &slots_);
        }
        std::fill(now.begin(), now.end(), -1);
        for (std::size_t i = begin; i < end; ++i) {
          const SymbolicInstruction& of = code_.instructions[i];
          if (slots_[of.tasks] == 0) continue;
          Made made = make(of);
          budget_.spend(of.ints.size() + of.operands.size() + of.waits.size() + of.carried.size());
          for (const std::size_t other : of.waits) {
            if (other >= begin && now[other - begin] >= 0) {
              made.waits.push_back(now[other - begin]);
            } else {
              budget_.spend(copies_[other].size());
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

  // Each right after what it waits for, with some exceptions.
  void assign_levels() {
    if (code_.wave_bytes > 0) return assign_waves();
    if (code_.branches > 0) return assign_branches();
    for (Made& made : made_) made.level = after(made);
    wait_for_readers();
  }

  // Moves instructions to the level before their first reader's, if they read only the caller's memory or the results
  // of such instructions. A backward graph converts, or computes again, what was saved: so the result is not in memory
  // before it is needed. Other instructions stay: later levels for them would save no memory on the networks that were
  // tried. Branches there end in one buffer, which is alive from the first of the branches on.
  void wait_for_readers() {
    std::vector<char> all(made_.size(), 1), waiting(made_.size(), 0);
    const std::vector<std::int64_t> last = latest(all);
    for (std::size_t i = 0; i < made_.size(); ++i) {
      const auto waits = [&](std::size_t writer) { return waiting[writer] != 0; };
      waiting[i] = last[i] > made_[i].level && std::all_of(made_[i].waits.begin(), made_[i].waits.end(), waits);
    }
    const std::vector<std::int64_t> moved = latest(waiting);
    for (std::size_t i = 0; i < made_.size(); ++i) made_[i].level = moved[i];
  }

  // The last levels in which those that move still come before all that waits for them. Where nothing does, they stay.
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

  // Puts what each result needs into levels, wave by wave (Program::wave_bytes).
  void assign_waves() {
    for (Made& made : made_) made.level = -1;
    std::int64_t base = 0, last = -1, used = 0;
    std::vector<std::size_t> chain, stack;
    std::vector<char> seen(made_.size(), 0);
    for (std::size_t result = 0; result < made_.size(); ++result) {
      const auto& operands = made_[result].of->operands;
      const auto is_prepared = [](const SymbolicOperand& operand) { return operand.space == Space::kPrepared; };
      if (std::none_of(operands.begin(), operands.end(), is_prepared)) continue;
      if (used > code_.wave_bytes) base = 1 + last, used = 0;
      chain.clear();
      stack.assign(1, result);
      while (!stack.empty()) {
        const std::size_t each = stack.back();
        stack.pop_back();
        if (seen[each]) continue;
        seen[each] = 1;
        chain.push_back(each);
        stack.insert(stack.end(), made_[each].waits.begin(), made_[each].waits.end());
      }
      std::sort(chain.begin(), chain.end());
      for (const std::size_t each : chain) {
        made_[each].level = std::max(base, after(made_[each]));
        last = std::max(last, made_[each].level);
        const SymbolicOperand& written = made_[each].of->operands.back();
        if (written.space == Space::kArena) used += slots_[code_.buffers[written.index].bytes];
      }
    }
  }

  // At most `branches` nodes in a level; of one the nodes run one after the other. The instructions of one node that
  // are independent may always run at once.
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
        budget_.spend(1 + code_.branches);
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

  // Gathers the instructions of each level, in the order of the Program, and leaves out empty levels.
  void gather() {
    std::int64_t highest = -1;
    for (const Made& made : made_) highest = std::max(highest, made.level);
    std::vector<std::int64_t> numbers(1 + highest, -1);
    for (const Made& made : made_) {
      if (made.level >= 0) numbers[made.level] = 0;
    }
    std::int64_t next = 0;
    for (std::int64_t& number : numbers) number = number < 0 ? -1 : next++;
    levels_.resize(next);
    for (Made& made : made_) {
      if (made.level < 0) continue;
      made.level = numbers[made.level];
      levels_[made.level].push_back(&made);
    }
  }

  void plan() {
    std::vector<std::int64_t> place(code_.buffers.size(), -1);
    std::vector<std::size_t> buffers;
    std::vector<Lifetime> lives;
    bool zeroed = false;
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      for (const Made* made : levels_[level]) {
        for (const SymbolicOperand& operand : made->of->operands) {
          if (operand.space != Space::kArena) continue;
          if (place[operand.index] < 0) {
            const SymbolicBuffer& buffer = code_.buffers[operand.index];
            place[operand.index] = static_cast<std::int64_t>(lives.size());
            lives.push_back({counted(slots_[buffer.bytes]), static_cast<std::int64_t>(level), 0, buffer.region});
            buffers.push_back(operand.index);
            zeroed = zeroed || buffer.zeroing >= 0;
          }
          lives[place[operand.index]].last = static_cast<std::int64_t>(level);
        }
      }
    }
    const auto is_long = [](const Lifetime& life) { return life.last - life.first >= kShortLife; };
    budget_.spend(lives.size() * (16 + std::count_if(lives.begin(), lives.end(), is_long) / 16));
    peak_ = peak_bytes(lives);
    separate_ = separate_bytes(lives);
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
          zeroed_.push_back(buffers[i]);
        }
      }
    }
    // Halos are written once, by one of those that share the memory; nothing else has to be zero.
    std::unordered_set<std::int64_t> written;
    for (std::size_t i = 0; i < lives.size(); ++i) {
      const auto [bytes, region, zeroing] = code_.buffers[buffers[i]];
      zeros_known_ = zeros_known_ && (region < 0 || zeroing >= 0);
      if (!zeroing_.empty() || zeroing < 0) continue;
      if (written.insert(found.offsets[i]).second) first_.push_back(make(code_.zeroing[zeroing]));
    }
    arena_bytes_ = found.total;
    offsets_.assign(code_.buffers.size(), 0);
    for (std::size_t i = 0; i < buffers.size(); ++i) offsets_[buffers[i]] = found.offsets[i];
  }

  std::shared_ptr<BoundProgram> write() {
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
      const SymbolicConstant& of = code_.constants[index];
      if (of.table == nullptr) {
        constants.push_back(of.fixed);
      } else {
        Slots numbers;
        for (const Slot slot : of.numbers) numbers.push_back(slots_[slot]);
        const AlignedBuffer& table = owned->tables.emplace_back(of.table->make(numbers));
        budget_.spend(table.size() / 32);
        constants.push_back({table.data(), table.size()});
      }
      places[index] = static_cast<std::int64_t>(constants.size()) - 1;
      return constants.size() - 1;
    };
    const auto written = [&](Made& made, Level* level) {
      Instruction& to = level->emplace_back();
      to.name = made.of->name;
      to.kernel = made.of->kernel;
      to.operands.reserve(made.offsets.size());
      for (std::size_t i = 0; i < made.offsets.size(); ++i) {
        const SymbolicOperand& operand = made.of->operands[i];
        const bool arena = operand.space == Space::kArena;
        const std::int64_t offset = SizeInts::add(made.offsets[i], arena ? offsets_[operand.index] : 0);
        std::size_t index = arena ? 0 : operand.index;
        if (operand.space == Space::kConstant) index = constant(operand.index);
        to.operands.push_back({operand.space, index, static_cast<std::size_t>(counted(offset))});
      }
      to.ints = std::move(made.ints);
      to.floats = made.of->floats;
      to.tasks = made.tasks;
      to.origin = made.of->origin;
      to.operations = static_cast<double>(made.operations);
      to.bytes = static_cast<double>(made.bytes);
    };
    std::vector<Level> levels;
    levels.reserve(levels_.size());
    for (const std::vector<Made*>& from : levels_) {
      Level& level = levels.emplace_back();
      level.reserve(from.size());
      for (Made* made : from) written(*made, &level);
    }
    Level first;
    for (Made& made : first_) written(made, &first);
    auto program = std::make_shared<BoundProgram>(std::move(levels), static_cast<std::size_t>(arena_bytes_),
                                             std::move(constants), owned);
    if (zeros_known_) program->set_zeroing(std::move(first));
    return program;
  }

  const Program& code_;
  Slots slots_;
  std::vector<Made> made_;
  std::vector<std::vector<std::size_t>> copies_;
  std::vector<std::vector<Made*>> levels_;
  std::vector<std::unique_ptr<Made>> zeroing_;  // in each run
  std::vector<Made> first_;                     // before the first
  std::vector<std::size_t> zeroed_;
  bool zeros_known_ = true;                     // files of older versions do not tell all
  std::vector<std::int64_t> offsets_;  // of the buffers
  std::int64_t arena_bytes_ = 0, peak_ = 0, separate_ = 0;
  Budget budget_;
};

std::optional<Slots> unified(const Program& code, const Shapes& shapes, std::optional<std::size_t>* broken) {
  const std::size_t symbols = code.bounds.size();
  Slots slots(code.sizes.slots());
  std::vector<char> known(symbols, 0);
  if (shapes.size() != code.inputs.size()) return std::nullopt;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const std::vector<Slot>& wanted = code.inputs[i].shape;
    if (shapes[i].size() != wanted.size()) return std::nullopt;
    for (std::size_t axis = 0; axis < wanted.size(); ++axis) {
      if (wanted[axis] >= symbols || known[wanted[axis]]) continue;
      const SymbolicBounds& bounds = code.bounds[wanted[axis]];
      if (shapes[i][axis] < bounds.low || shapes[i][axis] > bounds.high) return std::nullopt;
      slots[wanted[axis]] = shapes[i][axis];
      known[wanted[axis]] = 1;
    }
  }
  if (std::find(known.begin(), known.end(), 0) != known.end()) return std::nullopt;
  code.sizes.evaluate(0, &slots);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (std::size_t axis = 0; axis < shapes[i].size(); ++axis) {
      if (slots[code.inputs[i].shape[axis]] != shapes[i][axis]) return std::nullopt;
    }
  }
  for (std::size_t i = 0; i < code.guards.size(); ++i) {
    if (slots[code.guards[i].slot] == code.guards[i].value) continue;
    if (broken != nullptr) *broken = i;
    return std::nullopt;
  }
  return slots;
}

std::vector<TensorSpec> specs(const std::vector<SymbolicSpec>& of, const Slots& slots) {
  std::vector<TensorSpec> found;
  for (const SymbolicSpec& spec : of) {
    std::vector<std::int64_t> shape;
    std::int64_t elements = 1;  // as if none of the dimensions were 0: nothing else may be made of the others
    for (const Slot size : spec.shape) {
      shape.push_back(counted(slots[size]));
      elements = counted(SizeInts::multiply(elements, std::max<std::int64_t>(shape.back(), 1)));
    }
    found.emplace_back(spec.element, std::move(shape));
  }
  return found;
}

}  // namespace

std::optional<Bound> bind_program(const Program& program, const Shapes& shapes, std::size_t most_steps,
                                  std::optional<std::size_t>* broken) {
  const std::optional<Slots> slots = unified(program, shapes, broken);
  if (!slots) return std::nullopt;
  return Bound{Binding(program, *slots, most_steps).program(), specs(program.inputs, *slots),
               specs(program.outputs, *slots)};
}

std::optional<Plan> plan_program(const Program& program, const Shapes& shapes, std::size_t most_steps) {
  const std::optional<Slots> slots = unified(program, shapes, nullptr);
  return slots ? std::optional(Binding(program, *slots, most_steps).told()) : std::nullopt;
}

Shapes input_shapes(const Program& program) {
  Slots slots(program.sizes.slots());
  if (!program.bounds.empty()) throw std::invalid_argument("the sizes of a Program with symbols are not known");
  program.sizes.evaluate(0, &slots);
  Shapes shapes;
  for (const TensorSpec& spec : specs(program.inputs, slots)) shapes.push_back(spec.shape);
  return shapes;
}

}  // namespace ngraph_mxnet
