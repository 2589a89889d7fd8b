"""The named orders of passes, readable top to bottom."""

from __future__ import annotations

from collections.abc import Collection

from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.passes.affine_folding import affine_folding
from ngraph_mxnet.passes.algebraic import algebraic
from ngraph_mxnet.passes.attention_fusion import attention_fusion
from ngraph_mxnet.passes.base import FixedPoint, Observer, Pass, PassManager, Report
from ngraph_mxnet.passes.batch_norm_folding import batch_norm_folding
from ngraph_mxnet.passes.clamp_fusion import clamp_fusion
from ngraph_mxnet.passes.constant_folding import ConstantFolding
from ngraph_mxnet.passes.cse import Cse
from ngraph_mxnet.passes.dead_code import DeadCode
from ngraph_mxnet.passes.default_bias import default_bias
from ngraph_mxnet.passes.dropout_removal import dropout_removal
from ngraph_mxnet.passes.fuse_scale_shift import fuse_scale_shift
from ngraph_mxnet.passes.global_pool import global_pool
from ngraph_mxnet.passes.hard_swish_fusion import hard_swish_fusion
from ngraph_mxnet.passes.merge_products import MergeProducts
from ngraph_mxnet.passes.movement import movement
from ngraph_mxnet.passes.one_hot_product import one_hot_product
from ngraph_mxnet.passes.pad_fusion import pad_fusion
from ngraph_mxnet.passes.pixel_shuffle import pixel_shuffle
from ngraph_mxnet.passes.recurrent_cells import recurrent_cells
from ngraph_mxnet.passes.residual_fusion import residual_fusion
from ngraph_mxnet.passes.whole_numbers import whole_numbers

_COMBINING = ("attention_fusion", "fuse_scale_shift")
"""Passes that make one op of what only some devices run as one."""


def cpu_independent_passes(*, combine: bool = True) -> list[Pass | FixedPoint]:
    """What every backend with the fused ops wants; others do not `combine`. Why this order:"""
    passes: list[Pass | FixedPoint] = [
        # What no result needs must not count as a reader: most fusions ask for a single reader.
        DeadCode(),
        # No-ops between two ops hide patterns, and each of these passes uncovers work for the others.
        FixedPoint("simplify", (
            dropout_removal(), ConstantFolding(), algebraic(), whole_numbers(), movement(), global_pool(), Cse(),
            DeadCode(),
        )),
        # These two before the products get biases: afterwards their parts are neighbours no more.
        attention_fusion(),
        one_hot_product(),
        # Early: a pad in front of a convolution is independent of everything behind it, and the pad's
        # legality before max_pool shows in the clamp, which is a node of its own only until clamp_fusion.
        pad_fusion(),
        # Arithmetic per channel goes into weights and bias. The two alternate along a chain:
        # convolution, bias, batch_norm, scale.
        FixedPoint("fold", (affine_folding(), batch_norm_folding())),
        # Before clamps are taken for activations of what they bound.
        hard_swish_fusion(),
        # Residuals after biases and batch norms: nothing can be scaled once the residual is added.
        residual_fusion(),
        # Clamps last: nothing can be added once it is clamped.
        clamp_fusion(),
        default_bias(),
        # With bias and clamp in place, which act on each channel and so on each phase.
        pixel_shuffle(),
        # Unrolled recurrent nets. Cells first: their products have biases by now, and what merging makes of the
        # inputs' products are slices, which must not be taken for gates.
        recurrent_cells(),
        MergeProducts(),
        # The weights' expressions that folding made: shared epsilons, reshapes, constant weights.
        FixedPoint("tidy", (ConstantFolding(), algebraic(), movement(), Cse(), DeadCode())),
        # Last, so that it can be left out: it needs residual and clamp in place.
        fuse_scale_shift(),
    ]
    return [each for each in passes if combine or each.name not in _COMBINING]


def optimize(graph: Graph, *, verify_each: bool = False, disable: Collection[str] = (),
             observer: Observer | None = None) -> Report:
    """Run the CPU-independent pipeline on `graph`, in place. See `PassManager` for the arguments."""
    passes = cpu_independent_passes()
    return PassManager(passes, verify_each=verify_each, disable=disable, observer=observer).run(graph)
