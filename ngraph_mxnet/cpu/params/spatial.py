"""The records of resizing, sampling by a grid and regions of interest; the last six ints of the others are strides."""

from ngraph_mxnet.cpu.params.record import Kernels

RESAMPLE = Kernels(
    "resample_blocked", tensors="input first_row row_weights first_column column_weights >output",
    ints="n c16 h w out_h out_w taps_h taps_w in_n in_c16 in_row out_n out_c16 out_row", sizes=8,
    tasks=lambda p: p.n * p.c16 * p.out_h,
)

SAMPLE = Kernels("bilinear_sample", tensors="images grid >output", ints="n c h w places", sizes=5,
                 tasks=lambda p: p.n * p.c)

_REGION = "n c16 h w regions out_h out_w samples in_n in_c16 in_row out_n out_c16 out_row"
ROI_ALIGN = Kernels("roi_align_blocked", tensors="input regions >output", ints=_REGION, sizes=7, floats="scale offset",
                    tasks=lambda p: p.regions * p.c16 * p.out_h)
ROI_MAX_POOL = Kernels("roi_max_pool_blocked", tensors="input regions >output", ints=_REGION, sizes=7, floats="scale",
                       tasks=lambda p: p.regions * p.c16 * p.out_h)
