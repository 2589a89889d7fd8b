"""Steps of training that write to none of their inputs."""

from __future__ import annotations

from ngraph_mxnet.bridges.mxnet.rules.registry import FLOATS, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.ir import Builder, Value


@rule("sgd_update", operands=2, types=FLOATS, ignored=["lazy_update"])
def sgd_update(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """weight - lr (clip(rescale_grad gradient) + wd weight), clipped where `clip_gradient` is not negative."""
    weight, gradient = inputs
    bound = attrs.float("clip_gradient", -1.0)
    step = b.multiply(gradient, scalar(b, attrs.float("rescale_grad", 1.0), gradient))
    if bound >= 0:
        step = b.clamp(step, lower=-bound, upper=bound)
    step = b.add(step, b.multiply(weight, scalar(b, attrs.float("wd", 0.0), weight)))
    return b.subtract(weight, b.multiply(step, scalar(b, attrs.float("lr"), weight)))
