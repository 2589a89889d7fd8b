"""A cluster of ops as one node, for backends that make one kernel of it."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ngraph_mxnet.ir.body import Body
from ngraph_mxnet.ir.facts import Rates, Shapes
from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.ir.opdef import Attrs, register_op
from ngraph_mxnet.ops.common import require


def _work(operands: Shapes, results: Shapes, attrs: Attrs) -> Rates:
    total: Counter[str] = Counter()
    for node in attrs["body"].nodes:
        total += node.op.operations([v.shape for v in node.inputs], [v.shape for v in node.outputs], node.attrs)
    return total


@register_op("fused", operands=(0, None), attrs={"body": Body()}, work=_work)
def fused(types, attrs):
    """What the graph `body` computes: its parameters are the operands, its results the outputs."""
    wanted = [parameter.type for parameter in attrs["body"].parameters]
    require(len(types) == len(wanted), "operands", len(types), f"{len(wanted)}, as the body has parameters")
    for position, (found, parameter) in enumerate(zip(types, wanted, strict=True)):
        require(found == parameter, f"operand {position}", found, f"{parameter}, as the body's parameter")
    return [result.type for result in attrs["body"].results]


@fused.reference
def _(inputs, attrs):
    body: Graph = attrs["body"]
    values: dict[Value, np.ndarray] = dict(zip(body.parameters, inputs, strict=True))
    for node in body.nodes:
        results = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
        values.update(zip(node.outputs, results, strict=True))
    return [values[result] for result in body.results]
