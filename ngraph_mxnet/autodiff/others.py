"""Ops without an adjoint, and why."""

from __future__ import annotations

from ngraph_mxnet.autodiff.adjoints import no_derivative, refuse

no_derivative("its result is no float", "random_mask")
refuse("passes make it of ops that have one, after gradients are there", "convolution_bias", "convolution_bias_add",
       "convolution_bias_add_scale_shift", "matmul_bias", "scale_shift", "fused", "quantized_convolution",
       "quantized_convolution_add", "quantized_convolution_add_scale_shift", "quantized_matmul")
refuse("no adjoint is written for it yet", "integer_convolution", "integer_matmul", "roi_align", "roi_max_pool",
       "gru_reset_first")
refuse("boxes are chosen by order; it has none in MXNet either", "box_nms")
refuse("it is a gradient itself: there are none of second order yet", "convolution_weight_gradient",
       "max_pool_gradient", "rnn_gradient", "lstm_cell_gradient", "gru_cell_gradient")
refuse("differentiation makes it of the op without training", "rnn_training", "lstm_cell_training", "gru_cell_training")
