"""Operators over sequences of different lengths in one tensor."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import element_type
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.rules.common import scalar
from ngraph_mxnet.mxnet_bridge.rules.registry import LOGIC, rule
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode


@rule("SequenceMask", operands=(1, 2), types=LOGIC)
def sequence_mask(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """`value` where a position along `axis` (0 or 1; the other one counts the sequences) reaches the length.

    A length is cut to a whole number, as MXNet cuts it.
    """
    x, axis, value = inputs[0], attrs.int("axis", 0), attrs.float("value", 0.0)
    if not attrs.bool("use_sequence_length", False):
        return x
    if axis not in (0, 1) or len(inputs) < 2 or inputs[1].shape != (x.shape[1 - axis],):
        raise UnsupportedError(f"axis={axis} of {x.type} with {len(inputs) - 1} inputs of lengths that do not fit it")
    lengths = b.trunc(b.convert(inputs[1], element=element_type("f32")))
    positions = np.arange(x.shape[axis], dtype=np.float32)
    rest = (1,) * (x.type.rank - 2)
    inside = b.less(b.constant(positions.reshape((1, -1, *rest) if axis else (-1, 1, *rest))),
                    b.reshape(lengths, shape=(x.shape[0], 1, *rest) if axis else (1, x.shape[1], *rest)))
    return b.select(inside, x, scalar(b, value, x))
