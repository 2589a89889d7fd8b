"""Builds a graph node by node; types are inferred at once, so a mistake is told where it is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.errors import TypeRuleError
from ngraph_mxnet.ir.dims import Dim
from ngraph_mxnet.ir.graph import Graph, Node, Value, constant_of
from ngraph_mxnet.ir.op_table import get_op
from ngraph_mxnet.ir.sizes import because
from ngraph_mxnet.ir.types import ElementType, Role, TensorType, element_type


class Builder:
    """Appends to `graph`. Any op is a method: `b.convolution(x, w, strides=(2, 2))` returns its output.

    `origin` is written on the nodes that follow: set it to the framework's name before lowering each node.
    """

    def __init__(self, graph: Graph | None = None, *, name: str = "main") -> None:
        self.graph = graph if graph is not None else Graph(name)
        self.origin = ""

    def parameter(self, name: str, shape: Sequence[int], dtype: str | ElementType = "f32",
                  role: Role = Role.INPUT) -> Value:
        """A new graph input."""
        type_ = TensorType(element_type(dtype), tuple(d if isinstance(d, Dim) else int(d) for d in shape))
        return self.graph.add_parameter(type_, name, role, origin=self.origin)

    def weight(self, name: str, shape: Sequence[int], dtype: str | ElementType = "f32") -> Value:
        """A new graph input whose content seldom changes."""
        return self.parameter(name, shape, dtype, Role.WEIGHT)

    def constant(self, value: Any, dtype: str | ElementType | None = None) -> Value:
        """A constant from anything NumPy takes; Python floats become f32."""
        array = np.asarray(value)
        if dtype is not None:
            array = array.astype(element_type(dtype).numpy)
        elif array.dtype == np.float64 and not isinstance(value, (np.ndarray, np.generic)):
            array = array.astype(np.float32)
        return self.apply("constant", value=array)

    def apply(self, op_name: str, *inputs: Value, **attrs: Any) -> Value:
        """Apply an op with one output and return that."""
        return self.node(op_name, inputs, attrs).output

    def node(self, op_name: str, inputs: Sequence[Value], attrs: dict[str, Any]) -> Node:
        """Apply an op and return the node.

        Raises:
            KeyError: no such op.
            TypeRuleError: operands or attributes do not fit; the text names the node and the operand types.
        """
        node = make_node(op_name, inputs, attrs, self.origin)
        self.graph.nodes.append(node)
        return node

    def results(self, *values: Value) -> Graph:
        """Set the graph's results and return the graph."""
        self.graph.results = list(values)
        return self.graph

    def __getattr__(self, op_name: str) -> Any:
        if op_name.startswith("_"):
            raise AttributeError(op_name)
        try:
            get_op(op_name)
        except KeyError as error:
            raise AttributeError(str(error)) from None
        return lambda *inputs, **attrs: self.apply(op_name, *inputs, **attrs)


def make_node(op_name: str, inputs: Sequence[Value], attrs: dict[str, Any], origin: str = "") -> Node:
    """A node with inferred output types that is in no graph yet (for passes)."""
    op = get_op(op_name)
    try:
        operand_types = [v.type for v in inputs]
        checked = op.complete(operand_types, op.check_attrs(attrs))
        with because(f"{op_name} ({origin})" if origin else op_name):
            types = op.infer(operand_types, checked)
    except TypeRuleError as error:
        operands = ", ".join(str(v.type) for v in inputs)
        raise TypeRuleError(f"{op_name}({operands})" + (f" from {origin}" if origin else "") + f": {error}") from None
    node = Node(op, list(inputs), checked, origin=origin)
    node.outputs = [Value(type_, node, index) for index, type_ in enumerate(types)]
    return node


def make_folded(op_name: str, inputs: Sequence[Value], attrs: dict[str, Any], origin: str = "") -> Node:
    """Make a node as `make_node` does, of an op with one output. Where all operands are constants, make a constant of
    the op's result instead. Passes that ask for numbers find them so at once."""
    node = make_node(op_name, inputs, attrs, origin)
    arrays = [array for array in map(constant_of, inputs) if array is not None]
    if not inputs or len(arrays) < len(inputs):
        return node
    with np.errstate(all="ignore"):
        (value,) = node.op.evaluate(arrays, node.attrs)
    return make_node("constant", [], {"value": value}, origin)
