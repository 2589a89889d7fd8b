"""Parts of the targets' pipelines: named groups of passes, each readable top to bottom.

A pass that makes one op of what a target runs as one, and others do not, stands in that target's own pipeline, between
these groups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.passes.base import FixedPoint, Observer, Pass, PassManager, Report
from ngraph_mxnet.passes.fold import ConstantFolding, affine_folding, batch_norm_folding
from ngraph_mxnet.passes.fuse import clamp_fusion, default_bias, pad_fusion, residual_fusion, swish_fusion
from ngraph_mxnet.passes.movement import MergeProducts, global_pool, movement, one_hot_product, pixel_shuffle, scattered
from ngraph_mxnet.passes.sequences import recurrent_cells
from ngraph_mxnet.passes.simplify import Cse, DeadCode, algebraic, dropout_removal, whole_numbers


def simplifying() -> list[Pass | FixedPoint]:
    """Less of the same ops. First, in this order:"""
    return [
        # What no result needs must not count as a reader: most fusions ask for a single reader.
        DeadCode(),
        # No-ops between two ops hide patterns, and each of these passes uncovers work for the others.
        FixedPoint("simplify", (
            dropout_removal(), ConstantFolding(), algebraic(), whole_numbers(), movement(), global_pool(), scattered(),
            Cse(), DeadCode(),
        )),
    ]


def fusing() -> list[Pass | FixedPoint]:
    """Ops of several, which every target with the fused ops wants. Why this order:"""
    return [
        # Before the products get biases: afterwards its parts are neighbours no more.
        one_hot_product(),
        # Early: a pad in front of a convolution is independent of everything behind it, and the pad's
        # legality before max_pool shows in the clamp, which is a node of its own only until clamp_fusion.
        pad_fusion(),
        # Arithmetic per channel goes into weights and bias. The two alternate along a chain:
        # convolution, bias, batch_norm, scale.
        FixedPoint("fold", (affine_folding(), batch_norm_folding())),
        # Before clamps are taken for activations of what they bound.
        swish_fusion(),
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
    ]


def shared_passes() -> list[Pass | FixedPoint]:
    """Return the passes that every target with the fused ops wants."""
    return [*simplifying(), *fusing()]


def optimize(graph: Graph, passes: Sequence[Pass | FixedPoint] | None = None, *, verify_each: bool = False,
             disable: Collection[str] = (), observer: Observer | None = None) -> Report:
    """Run the shared passes, or a target's pipeline, on `graph`, in place. See `PassManager` for the arguments."""
    manager = PassManager(shared_passes() if passes is None else passes, verify_each=verify_each, disable=disable,
                          observer=observer)
    return manager.run(graph)
