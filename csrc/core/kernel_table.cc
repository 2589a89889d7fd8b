#include "core/kernel_table.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ngraph_mxnet {

namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

bool bit(unsigned word, int n) { return (word >> n) & 1; }

// Which register files the operating system saves when it switches threads.
std::uint64_t saved_state() {
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

// Asks the system for the tiles of AMX, once a process: all that asks, in whichever interpreter, gets the same answer. It
// refuses if it is too old, and while a thread has an alternate signal stack that has no room for them; children of a
// fork have what their parent has.
bool may_use_tiles() {
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  static const bool allowed = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return allowed;
}

}  // namespace

std::vector<std::pair<std::string, bool>> cpu_features() {
  const Registers basic = cpuid(1, 0), more = cpuid(7, 0), extended = cpuid(0x80000001, 0);
  const bool os_saves = bit(basic.c, 27);  // OSXSAVE: xgetbv exists
  const std::uint64_t saved = os_saves ? saved_state() : 0;
  const bool ymm = (saved & 0x6) == 0x6 && bit(basic.c, 28);              // SSE and AVX
  const bool zmm = ymm && (saved & 0xe6) == 0xe6 && bit(more.b, 16);      // and opmask, both parts of ZMM
  const bool tiles = zmm && (saved >> 17 & 3) == 3 && bit(more.d, 24) && may_use_tiles();
  return {
      {"sse3", bit(basic.c, 0)},
      {"ssse3", bit(basic.c, 9)},
      {"cx16", bit(basic.c, 13)},
      {"sse4.1", bit(basic.c, 19)},
      {"sse4.2", bit(basic.c, 20)},
      {"movbe", bit(basic.c, 22)},
      {"popcnt", bit(basic.c, 23)},
      {"sahf", bit(extended.c, 0)},
      {"lzcnt", bit(extended.c, 5)},
      {"sse4a", bit(extended.c, 6)},
      {"bmi", bit(more.b, 3)},
      {"bmi2", bit(more.b, 8)},
      {"avx", ymm},
      {"fma", ymm && bit(basic.c, 12)},
      {"f16c", ymm && bit(basic.c, 29)},
      {"avx2", ymm && bit(more.b, 5)},
      {"avxvnni", ymm && more.a >= 1 && bit(cpuid(7, 1).a, 4)},
      {"avx512f", zmm},
      {"avx512dq", zmm && bit(more.b, 17)},
      {"avx512cd", zmm && bit(more.b, 28)},
      {"avx512bw", zmm && bit(more.b, 30)},
      {"avx512vl", zmm && bit(more.b, 31)},
      {"avx512vp2intersect", zmm && bit(more.d, 8)},
      {"avx512vnni", zmm && bit(more.c, 11)},
      {"avx512bf16", zmm && more.a >= 1 && bit(cpuid(7, 1).a, 5)},
      {"amx-tile", tiles && bit(more.d, 24)},
      {"amx-bf16", tiles && bit(more.d, 22)},
      {"amx-int8", tiles && bit(more.d, 25)},
  };
}

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
  if (ends_with(name, "_amx")) return has("avx512bf16") && has("amx-bf16") && has("amx-int8");
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
