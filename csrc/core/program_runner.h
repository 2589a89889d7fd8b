// Runs Programs on a team of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/aligned_buffer.h"
#include "core/bound_program.h"
#include "core/team_choice.h"

namespace ngraph_mxnet {

// Addresses of the tensors of one call.
struct Bindings {
  std::vector<char*> inputs;
  std::vector<char*> outputs;
  char* prepared = nullptr;
};

// One Program with its tasks cut into chunks for a team. Calls may overlap: each has its own arena.
class ProgramRunner {
 public:
  enum class Schedule { kByLevel, kOneByOne };

  // At most `idle_arenas` are kept for the next calls, fewer if all runners together keep too much.
  // `name` and `category` are those of a whole run's span in a trace.
  ProgramRunner(std::shared_ptr<const BoundProgram> program, int threads, std::size_t idle_arenas,
                std::string name, std::string category, Schedule schedule = Schedule::kByLevel);
  ~ProgramRunner();

  // Before the first run; see CompiledGraph.
  void set_graph(std::uint64_t graph) { graph_ = graph; }
  const std::shared_ptr<const BoundProgram>& program() const { return program_; }

  // Called with the number of an instruction that has run, and the arena's memory.
  using AfterStep = std::function<void(std::size_t step, const char* arena)>;

  // With `seconds`, adds the duration of each phase to it: with kOneByOne, of each instruction. `after`, which throws
  // nothing, is for kOneByOne on one thread.
  void run(const Bindings& bindings, std::vector<double>* seconds = nullptr, const AfterStep* after = nullptr);

  // Returns how many threads a run asks for.
  int threads() const { return choice_.mostly_alone() ? 1 : widest_; }

 private:
  // An instruction, with its operands flattened into one array for the whole Program.
  struct Step {
    Kernel kernel;
    std::size_t first_operand;
    const std::int64_t* ints;
    const double* floats;
  };
  struct Chunk {
    std::size_t step;
    std::int64_t begin, end;
  };
  // Chunks that wait for none of each other. Serial: in order, on one thread.
  struct Phase {
    bool serial;
    std::vector<Chunk> chunks;
  };
  struct Patch {
    std::size_t operand;
    Operand source;
  };
  struct Frame;
  class IdleFrames;
  class Run;

  // Takes the chunks of each thread's share, for at most `width` threads, and those that come `first` and are quick.
  void add_level(std::vector<std::vector<Chunk>>* shares, std::vector<Chunk>* first, int width, Schedule schedule);
  void add_step(const Instruction& instruction);
  std::unique_ptr<Frame> take_frame();
  AlignedBuffer new_arena() const;
  void give_back(std::unique_ptr<Frame> frame);
  void run_on_frame(Frame* frame, std::vector<double>* seconds, const AfterStep* after);
  std::uint32_t trace_labels();
  void bind(Frame* frame, const Bindings& bindings) const;
  void run_chunk(const Chunk& chunk, Frame* frame) const;

  std::shared_ptr<const BoundProgram> program_;
  int threads_;
  std::size_t idle_arenas_;
  std::uint64_t graph_ = 0;  // 0: not known
  std::vector<Step> steps_;
  std::vector<Phase> phases_;
  std::vector<Patch> patches_;  // the operands that change with every call
  std::vector<Patch> fixed_;    // arena and constants: set once in a frame
  std::vector<std::size_t> final_at_end_;  // outputs that no step announces (see result_watch.h)
  std::size_t instructions_ = 0;           // steps that are the Program's; the others announce outputs
  std::size_t operand_count_ = 0;
  int widest_ = 1;  // the most threads that any phase can use
  TeamChoice choice_;
  std::string name_, category_;
  std::once_flag labelled_;
  std::uint32_t first_label_ = 0;  // the whole run's; the steps' follow
};

}  // namespace ngraph_mxnet
