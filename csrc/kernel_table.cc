#include "kernel_table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>

#include "cpu_features.h"

namespace ngraph_mxnet {
namespace {

bool has(const std::string& feature) {
  static const auto features = cpu_features();  // to ask the CPU takes tens of microseconds in a virtual machine
  return std::find(features.begin(), features.end(), std::make_pair(feature, true)) != features.end();
}

}  // namespace

Kernel find_kernel(const char* name) {
  const NamedKernel* const end = kKernels + kKernelCount;
  const auto before = [](const NamedKernel& one, const char* other) { return std::strcmp(one.name, other) < 0; };
  const NamedKernel* const found = std::lower_bound(kKernels, end, name, before);
  return found == end || std::strcmp(found->name, name) != 0 ? nullptr : found->kernel;
}

bool runs_kernel(const std::string& name) { return name.find("_bf16__") == std::string::npos || has("avx512bf16"); }

bool runs(const InstructionSet& set) {
  std::istringstream needs(set.needs);
  for (std::string need; needs >> need;) {
    if (!has(need)) return false;
  }
  return true;
}

const InstructionSet& best_instruction_set() {
  const char* const set = std::getenv("NGRAPH_CPU_ISA");
  const std::string wanted = set == nullptr || *set == '\0' ? "auto" : set;
  for (std::size_t i = 0; i < kInstructionSetCount; ++i) {
    const InstructionSet& each = kInstructionSets[i];
    if (wanted == "auto" ? runs(each) : wanted == each.name && runs(each)) return each;
  }
  throw std::invalid_argument("NGRAPH_CPU_ISA=" + wanted + ": this CPU has no such instruction set");
}

}  // namespace ngraph_mxnet
