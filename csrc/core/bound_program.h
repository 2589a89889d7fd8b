// A Program that is bound to sizes: kernels to call, in levels. Immutable once made, so any number of threads may run
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ngraph_mxnet {

using Kernel = void (*)(char* const* tensors, const std::int64_t* ints, const double* floats,
                        std::int64_t begin, std::int64_t end);

enum class Space { kArena = 0, kInput = 1, kOutput = 2, kConstant = 3, kPrepared = 4 };

struct Operand {
  Space space;
  std::size_t index;   // which input, output or constant
  std::size_t offset;  // bytes
};

struct Instruction {
  std::string name;
  Kernel kernel;
  std::vector<Operand> operands;
  std::vector<std::int64_t> ints;
  std::vector<double> floats;
  std::int64_t tasks;
  // For profiles: the framework's node, floating-point operations, bytes read and written.
  std::string origin = {};
  double operations = 0;
  double bytes = 0;
};

using Level = std::vector<Instruction>;

// Memory that nobody writes to. At least 64 more bytes can be read: a kernel's last vector may reach into them.
struct Constant {
  const char* data;
  std::size_t bytes;
};

class BoundProgram {
 public:
  // `owner` lives as long as the Program: whatever owns its constants and the code of its kernels.
  // Throws std::invalid_argument when an operand lies outside the arena or the constants.
  BoundProgram(std::vector<Level> levels, std::size_t arena_bytes, std::vector<Constant> constants,
          std::shared_ptr<const void> owner);

  const std::vector<Level>& levels() const { return levels_; }
  std::size_t arena_bytes() const { return arena_bytes_; }

  // Sets the instructions that write all that must be zero in an arena before its first run. Without them, the whole
  // arena must be zero. Throws std::invalid_argument when an operand lies outside the arena or the constants.
  void set_zeroing(Level zeroing);
  const std::optional<Level>& zeroing() const { return zeroing_; }
  const std::vector<Constant>& constants() const { return constants_; }

 private:
  void check(const Level& level) const;

  std::vector<Level> levels_;
  std::size_t arena_bytes_;
  std::optional<Level> zeroing_;
  std::vector<Constant> constants_;
  std::shared_ptr<const void> owner_;
};

// All that the Program computes depends on, as bytes: equal for Programs that do the same to the same operands. Of
// its constants it holds hashes.
std::string signature(const BoundProgram& program);

// Sizes of the memory that a Program may refer to beyond its own arena and constants.
struct Surroundings {
  std::vector<std::size_t> input_bytes;
  std::vector<std::size_t> output_bytes;
  std::size_t prepared_bytes;
};

// Throws std::invalid_argument, naming the instruction, when an operand lies outside.
void check_operands(const BoundProgram& program, const Surroundings& around);

// Checks that operands lie in memory that exists, and each instruction against its kernel's record. The kernels must be
// the table's. Throws std::invalid_argument that names the instruction and what is wrong with it.
void check_instructions(const BoundProgram& program, const Surroundings& around);

}  // namespace ngraph_mxnet
