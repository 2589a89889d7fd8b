"""Microkernels: dense contractions and depthwise convolution, generated as LLVM IR.

`params` states the kernels' contract, `tables` and `packing` make their constants, `tiles` chooses a kernel
and its tiling, `contraction` and `lanes` emit the IR, `target` compiles it.
"""
