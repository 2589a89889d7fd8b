#include "core/cpu_features.h"

#include <cstdint>

#include <cpuid.h>

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

}  // namespace

std::vector<std::pair<std::string, bool>> cpu_features() {
  const Registers basic = cpuid(1, 0), more = cpuid(7, 0), extended = cpuid(0x80000001, 0);
  const bool os_saves = bit(basic.c, 27);  // OSXSAVE: xgetbv exists
  const std::uint64_t saved = os_saves ? saved_state() : 0;
  const bool ymm = (saved & 0x6) == 0x6 && bit(basic.c, 28);              // SSE and AVX
  const bool zmm = ymm && (saved & 0xe6) == 0xe6 && bit(more.b, 16);      // and opmask, both parts of ZMM
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
  };
}

}  // namespace ngraph_mxnet
