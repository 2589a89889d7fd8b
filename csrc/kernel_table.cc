#include "kernel_table.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cpu_features.h"

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

// Those of bf16 need more than their instruction set.
bool is_bf16(std::string_view name) {
  constexpr std::string_view kSuffix = "_bf16";
  return name.size() > kSuffix.size() && name.substr(name.size() - kSuffix.size()) == kSuffix;
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
      const bool here = runs(kInstructionSets[i]) && (!is_bf16(name) || has("avx512bf16"));
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
