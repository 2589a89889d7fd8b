// The kernels of a library that holds them itself, and what CPU each instruction set needs. The build writes the tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "program.h"

namespace ngraph_mxnet {

struct NamedKernel {
  const char* name;
  Kernel kernel;
};

struct InstructionSet {
  const char* name;
  std::uint32_t number;  // docs/artefact.md
  const char* needs;     // features by LLVM's names, with spaces between
};

extern const NamedKernel kKernels[];  // by name
extern const std::size_t kKernelCount;
extern const InstructionSet kInstructionSets[];  // the best first
extern const std::size_t kInstructionSetCount;

// Null if there is none.
Kernel find_kernel(const char* name);

// Whether this CPU runs the kernel, if it runs the kernel's instruction set: those of bf16 need more.
bool runs_kernel(const std::string& name);

// The best that this CPU runs, or that NGRAPH_CPU_ISA names. Throws std::invalid_argument if the CPU lacks that.
const InstructionSet& best_instruction_set();

// Whether this CPU runs it.
bool runs(const InstructionSet& set);

}  // namespace ngraph_mxnet
