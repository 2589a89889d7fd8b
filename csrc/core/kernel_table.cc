#include "core/kernel_table.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/cpu_features.h"

namespace ngraph_mxnet {
namespace {

bool has(std::string_view feature) {
  static const auto features = cpu_features();  // to ask the CPU takes tens of microseconds in a virtual machine
  return std::any_of(features.begin(), features.end(),
                     [&](const auto& each) { return each.second && each.first == feature; });
}

bool has_all(std::string_view needs) {
  while (!needs.empty()) {
    const std::size_t length = std::min(needs.find(' '), needs.size());
    if (!has(needs.substr(0, length))) return false;
    needs.remove_prefix(std::min(length + 1, needs.size()));
  }
  return true;
}

bool ends_with(std::string_view name, std::string_view end) {
  return name.size() > end.size() && name.substr(name.size() - end.size()) == end;
}

// True if this CPU has what the kernel needs beyond its instruction set. Kernels of bf16 and contractions of bytes need
// more.
bool runs_here(std::string_view name, std::string_view set) {
  if (ends_with(name, "_bf16")) return has("avx512bf16");
  const bool of_bytes = name.substr(0, 15) == "contraction_k16" && ends_with(name, "_u8");
  return !of_bytes || has(set == "avx512" ? "avx512vnni" : "avxvnni");
}

}  // namespace

FoundKernel find_kernel(const std::string& symbol) {
  constexpr std::string_view kPrefix = "ng_", kBetween = "__";
  const std::size_t between = symbol.rfind(kBetween);
  if (between == std::string::npos || between < kPrefix.size() || symbol.compare(0, kPrefix.size(), kPrefix) != 0) {
    return {};
  }
  const std::string_view whole = symbol, name = whole.substr(kPrefix.size(), between - kPrefix.size());
  const std::string_view set_name = whole.substr(between + kBetween.size());
  const NamedKernel* const end = kKernels + kKernelCount;
  const auto name_of = [](const NamedKernel& one) { return std::string_view(kKernelNames + one.name); };
  const NamedKernel* const found = std::lower_bound(
      kKernels, end, name, [&](const NamedKernel& one, std::string_view other) { return name_of(one) < other; });
  if (found == end || name_of(*found) != name) return {};
  for (std::size_t i = 0; i < kInstructionSetCount; ++i) {
    if (set_name == kInstructionSets[i].name && found->kernels[i] != nullptr) {
      const bool here = runs(kInstructionSets[i]) && runs_here(name, set_name);
      return {found->kernels[i], &kKernelChecks[found->checks[i]], here};
    }
  }
  return {};
}

bool runs(const InstructionSet& set) {
  static const auto known = [] {
    std::array<bool, kInstructionSetCount> runs{};
    for (std::size_t i = 0; i < kInstructionSetCount; ++i) runs[i] = has_all(kInstructionSets[i].needs);
    return runs;
  }();
  return known[&set - kInstructionSets];
}

const InstructionSet& best_instruction_set() {
  const char* const set = std::getenv("NGRAPH_CPU_ISA");
  const std::string wanted = set == nullptr || *set == '\0' ? "auto" : set;
  for (const InstructionSet& each : kInstructionSets) {
    if (wanted == "auto" ? runs(each) : wanted == each.name && runs(each)) return each;
  }
  throw std::invalid_argument("NGRAPH_CPU_ISA=" + wanted + ": this CPU has no such instruction set");
}

}  // namespace ngraph_mxnet
