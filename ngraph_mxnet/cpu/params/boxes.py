"""The record of non-maximum suppression."""

from ngraph_mxnet.cpu.params.record import Kernels

BOX_NMS = Kernels(
    "box_nms", tensors="rows >output >order >numbers",
    ints="n rows columns topk coordinates score id background across_ids center in_place", sizes=4,
    floats="overlap valid", tasks=lambda p: p.n,
)
"""topk is at most rows, an id < 0 none."""
