// What the processor and the operating system let kernels use.
#pragma once

namespace ngraph_mxnet {

struct CpuFeatures {
  bool avx2, fma;
  bool avx512;  // F, BW, DQ and VL
  bool avx512_vnni, avx512_bf16;
};

CpuFeatures cpu_features();

}  // namespace ngraph_mxnet
