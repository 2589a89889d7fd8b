"""The CPU's passes."""

from __future__ import annotations

from ngraph_mxnet.passes.base import FixedPoint, Pass
from ngraph_mxnet.passes.clusters import InlineBodies
from ngraph_mxnet.passes.fuse import attention_fusion, fuse_scale_shift
from ngraph_mxnet.passes.movement import movement
from ngraph_mxnet.passes.pipelines import ConstantFolding, fusing, simplifying
from ngraph_mxnet.passes.simplify import Cse, DeadCode, algebraic
from ngraph_mxnet.quantisation.apply import QuantizeProducts, Recipe
from ngraph_mxnet.quantisation.byte_fusion import byte_functions, integer_sums, quantized_fusion
from ngraph_mxnet.quantisation.byte_products import (
    ShortSums,
    UnsignedData,
    quantize_early,
    quantized_products,
    stored_scale,
)
from ngraph_mxnet.quantisation.division import DivideData
from ngraph_mxnet.targets.cpu.machine.isa import InstructionSet
from ngraph_mxnet.targets.cpu.planning.gradients import gradients
from ngraph_mxnet.targets.cpu.planning.widening import widening


def pipeline() -> list[Pass | FixedPoint]:
    """The shared groups, and what only the CPU runs as one op. Clusters for codegen come after the split from the
    prepare graph."""
    return [
        InlineBodies(),
        # Before constants fold: weights must be seen as bytes with scales.
        quantized_products(),
        quantized_fusion(),
        UnsignedData(),
        widening(),
        gradients(),
        *simplifying(),
        # Before the products get biases: afterwards its parts are neighbours no more.
        attention_fusion(),
        *fusing(),
        # It needs residual and clamp in place.
        fuse_scale_shift(),
        # Once more: what the scales and biases of quantised products are is known by now.
        FixedPoint("quantized", (
            quantized_products(), quantized_fusion(), quantize_early(), ConstantFolding(), Cse(), DeadCode(),
        )),
        integer_sums(),
        # Once more: fusion may make narrow nodes, too.
        widening(),
        # Last: a product that is quantised at once has all that it will have.
        stored_scale(),
        byte_functions(),
        FixedPoint("tidy", (ConstantFolding(), algebraic(), movement(), Cse(), DeadCode())),
        # By now it is known which weights are constants.
        ShortSums(),
    ]


def quantizing(recipe: Recipe, instruction_set: InstructionSet) -> list[Pass]:
    """Behind these: what computes the products of a recipe, by the graph's names (`quantisation.apply`), in 8 bits.
    With AVX2 alone sums are in 16 bits where that is possible."""
    return [DivideData(recipe.factors, recipe.scales),
            QuantizeProducts(recipe.scales, recipe.means, short=instruction_set == "avx2"),
            quantize_early(), stored_scale(), ConstantFolding(), Cse(), DeadCode()]
