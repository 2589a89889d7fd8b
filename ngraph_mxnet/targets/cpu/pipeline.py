"""The CPU's passes, and which nodes of an optimised graph run together as one call of the kernel `chain`, where nothing
is generated."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Graph, Node
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.ranges import because
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.ir.types import boolean, f32
from ngraph_mxnet.passes.base import FixedPoint, Pass
from ngraph_mxnet.passes.clusters import MAIN, Clusters, InlineBodies, split_prepare
from ngraph_mxnet.passes.fuse import attention_fusion, fuse_scale_shift, pick_fusion
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
from ngraph_mxnet.targets.cpu.options import Options
from ngraph_mxnet.targets.cpu.params.strided import CHAIN_STEPS
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
        pick_fusion(),
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


LARGE = 1 << 14
"""Elements from which on one call is faster than several, measured: 0.8 to 0.9 of the time, half beyond caches."""


def chained(graph: Graph, wanted: Options) -> Module:
    """The module of a graph. In the main part elementwise ops of float32 that follow each other are `fused` nodes.

    Those are all of them, or none, as the option `chains` says. By default they are the large ones, unless convolutions
    compute what follows them, or producers store bytes or bf16 for their readers. Masks are no such bytes.
    """
    module = split_prepare(graph)
    main = module.graphs[MAIN]
    if wanted.chains or (wanted.chains is None and wanted.precision != "bf16" and not _has_images_or_bytes(main)):
        steps = _is_step if wanted.chains else _is_large_step
        with because("chains of elementwise ops"):
            Clusters(steps, lambda node: False, lambda graph: (), 0).run(main)
    return module


def _has_images_or_bytes(graph: Graph) -> bool:
    return any(node.op.kind in ("convolution", "pool") or any(
        v.type.element.size == 1 and v.type.element is not boolean for v in node.outputs) for node in graph.nodes)


def _is_step(node: Node) -> bool:
    values = (*node.inputs, *node.outputs)
    return node.op.name in CHAIN_STEPS and all(v.type.element is f32 for v in values) and node.output.type.size > 0


def _is_large_step(node: Node) -> bool:
    """True if the node is a step on a large tensor, with which nothing is broadcast but single numbers."""
    size = node.output.type.size if len(node.outputs) == 1 else 0
    return not is_symbolic(size) and size >= LARGE and _is_step(node) and all(
        v.shape == node.output.shape or v.type.size == 1 for v in node.inputs)
