// The kernels of a library that holds them itself, what their calls are held against, and what CPU each instruction set
// needs. The build writes the tables (targets/cpu/kernel_table.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/bound_program.h"

namespace ngraph_mxnet {

struct InstructionSet {
  const char* name;
  std::uint32_t number;  // docs/artefact.md
  const char* needs;     // features by LLVM's names, with spaces between
};

constexpr std::size_t kInstructionSetCount = 5;
extern const InstructionSet kInstructionSets[kInstructionSetCount];  // the best first

// Requirements that the calls of a kernel are held against, from the kernel's record.
struct Check {
  std::uint8_t tensors, ints, sizes, floats;
  std::uint32_t written, kept;  // sums of 1 << the tensor's number
  std::uint32_t code;           // its first byte in kCheckCode
};

// The steps of kCheckCode: each is its number, and a byte for each of its operands (targets/cpu/checks.py).
enum class Step : std::uint8_t {
  kEnd, kNumber, kAdd, kSubtract, kMultiply, kDivide, kModulo, kAnd, kLess, kAtMost, kEqual, kTable, kExtremes, kTiles,
  kTasks, kMore, kAligned, kSpan, kRefuseIf, kRefuseUnless, kSkipUnless
};

// A kernel, for each of kInstructionSets, of which avx_vnni and amx have none of their own: their programs call those of
// avx2 and avx512. Its name's first letter is kKernelNames[name].
struct NamedKernel {
  Kernel kernels[kInstructionSetCount];
  std::uint16_t name;
  std::uint8_t checks[kInstructionSetCount];
};

extern const char kKernelNames[];
extern const NamedKernel kKernels[];  // by name
extern const std::size_t kKernelCount;
extern const Check kKernelChecks[];
extern const std::uint8_t kCheckCode[];
extern const std::int64_t kCheckNumbers[];

struct FoundKernel {
  Kernel kernel = nullptr;  // null if there is none
  const Check* check = nullptr;
  bool runs = false;  // whether this CPU does it
};

// By its symbol: ng_<name>__<instruction set>.
FoundKernel find_kernel(const std::string& symbol);

// The best that this CPU runs, or that NGRAPH_CPU_ISA names. Throws std::invalid_argument if the CPU lacks that.
const InstructionSet& best_instruction_set();

// True if this CPU runs the instruction set.
bool runs(const InstructionSet& set);

// (LLVM's name of a feature, whether it is there): those that a compiler may be told of, beyond x86-64's own.
std::vector<std::pair<std::string, bool>> cpu_features();

}  // namespace ngraph_mxnet
