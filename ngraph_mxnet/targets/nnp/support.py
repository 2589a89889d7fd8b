"""Why the device does not run a node."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.targets.nnp.isa.program import ELEMENT_BYTES
from ngraph_mxnet.targets.nnp.lower.access import full, read, ways
from ngraph_mxnet.targets.nnp.lower.places import Resources
from ngraph_mxnet.targets.nnp.lower.views import VIEWS

_WIDE = ("i64", "u64")
_TAKES_WIDE = ("constant", "copy", "movement", "indexing", "position", "comparison", "choice")
"""Kinds of op that take 64-bit integers: they compute nothing, or compare."""
_SHARE = 0.9
"""The part of an engine's memory that one instruction's tiles may take."""


def unsupported(node: Node, resources: Resources) -> str | None:
    """The reason, as a phrase for people; None if the device runs the node."""
    if not node.op.has_reference and node.op.name != "constant":
        return f"op {node.op.name} has no reference"
    values = [*node.inputs, *node.outputs]
    if any(value.type.element.name == "f64" for value in values):
        return "the device has no float64"
    takes_wide = node.op.kind in _TAKES_WIDE and node.op.name != "bitcast"
    if not takes_wide and any(value.type.element.name in _WIDE for value in values):
        return "the device computes with integers of at most 32 bits; those of 64 are positions"
    if node.op.contraction and not node.inputs[0].type.element.is_float:
        return "the matrix grid multiplies real numbers only"
    if node.op.name == "bitcast" and any(value.type.element.is_float for value in values):
        return f"real numbers are stored in {resources.element}, whose bits are others"
    if node.op.name == "constant":
        return None
    return _too_large(node, resources)


def _too_large(node: Node, resources: Resources) -> str | None:
    memory, size = resources.shared[-1]
    values = dict.fromkeys([*node.inputs, *node.outputs])
    together = sum(stored_bytes(value.type, resources) for value in values)
    if together > size:
        return f"its tensors take {together} bytes, more than the {size} of {memory}"
    needed, most = least_bytes(node, resources), int(_SHARE * resources.local_bytes)
    if needed > most:
        return f"it can't be cut into parts of less than {needed} bytes, more than the {most} that an engine holds"
    return None


def stored_bytes(type_: TensorType, resources: Resources) -> int:
    """Return the bytes that a tensor takes on the device."""
    element = resources.element if type_.element.is_float else type_.element.name
    return type_.size * ELEMENT_BYTES[element]


def least_bytes(node: Node, resources: Resources) -> int:
    """Operands and results of the smallest instruction that is part of the node; nothing for what only moves."""
    if node.op.name in VIEWS and node.op.name != "convert":
        return 0
    box = full(node.outputs[0].shape)
    if not box.size:
        return 0
    for axis in ways(node):
        box = box.along(axis, 0, 1)
    found = read(node, box)
    pairs = [*zip(node.inputs, found.inputs, strict=True), *zip(node.outputs, found.outputs, strict=True)]
    return sum(stored_bytes(value.type.with_shape(part.shape), resources) for value, part in pairs)
