#include "cpu_features.h"

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

CpuFeatures cpu_features() {
  const Registers basic = cpuid(1, 0);
  const bool os_saves = bit(basic.c, 27);  // OSXSAVE: xgetbv exists
  const std::uint64_t saved = os_saves ? saved_state() : 0;
  const bool ymm = (saved & 0x6) == 0x6;    // SSE and AVX
  const bool zmm = (saved & 0xe6) == 0xe6;  // and opmask, both parts of ZMM
  const Registers extended = cpuid(7, 0);

  CpuFeatures features{};
  features.fma = ymm && bit(basic.c, 12);
  features.avx2 = ymm && bit(extended.b, 5);
  features.avx512 = zmm && bit(extended.b, 16) && bit(extended.b, 30) && bit(extended.b, 17) &&
                    bit(extended.b, 31);
  features.avx512_vnni = features.avx512 && bit(extended.c, 11);
  features.avx512_bf16 = features.avx512 && extended.a >= 1 && bit(cpuid(7, 1).a, 5);
  return features;
}

}  // namespace ngraph_mxnet
