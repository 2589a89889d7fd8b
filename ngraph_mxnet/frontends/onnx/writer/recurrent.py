"""Recurrent layers and cells in ONNX.

The IR's layers take the inputs' product with their weights; ONNX's take the inputs and the weights. Where the product
is in the graph its operands are taken, and the product falls away, else the weights are the identity.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import helper

from ngraph_mxnet.frontends.onnx.writer.document import Document, writes
from ngraph_mxnet.ir.graph import Node, Value

_ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "relu": (0,), "tanh": (0,)}
"""ONNX's gates by the IR's numbers: i, o, f, c of i, f, c, o; z, r, h of r, z, h."""
_OPERATORS = {"lstm": "LSTM", "gru": "GRU", "relu": "RNN", "tanh": "RNN"}


class _Inputs(NamedTuple):
    """Names of a layer's inputs, and of their weights [G*H, I] and bias [G*H]."""

    x: str
    weights: str
    bias: str


def _inputs(d: Document, gates: Value) -> _Inputs:
    """What the gates' part of the inputs is the product of."""
    product, size = gates, gates.shape[-1:]
    bias = d.constant(np.zeros(size, gates.element.numpy))
    if product.node is not None and product.node.op.name == "add":
        for of, other in (product.node.inputs, reversed(product.node.inputs)):
            if other.shape == size:
                product, bias = of, d.names[other]
                break
    made = product.node
    if made is not None and made.op.name == "matmul" and not made.attrs["transpose_a"] and (
            made.attrs["lower"], made.attrs["upper"]) == (-np.inf, np.inf):
        x, weights, *own = made.inputs
        if weights.rank == 2 and x.rank == 3 and not (own and product is not gates):
            bias = d.names[own[0]] if own else bias
            name = d.names[weights]
            return _Inputs(d.names[x], name if made.attrs["transpose_b"] else d.transposed(name, (1, 0)), bias)
    return _Inputs(d.names[gates], d.constant(np.eye(int(size[0]), dtype=gates.element.numpy)),
                   d.constant(np.zeros(size, gates.element.numpy)))


def _in_order(d: Document, name: str, cell: str) -> str:
    """[G*H, ...] with ONNX's order of gates, and a leading axis for the direction."""
    array, order = d.array(name), _ORDERS[cell]
    if array is not None:
        parts = np.split(array, len(order))
        return d.constant(np.concatenate([parts[gate] for gate in order])[None])
    names = d.split(name, len(order), axis=0) if len(order) > 1 else [name]
    return str(d.add("Unsqueeze", d.add("Concat", *(names[gate] for gate in order), axis=0), d.ints(0)))


def _joined(d: Document, *names: str, axis: int) -> str:
    arrays = [d.array(name) for name in names]
    known = [array for array in arrays if array is not None]
    if len(known) == len(names):
        return d.constant(np.concatenate(known, axis))
    return str(d.add("Concat", *names, axis=axis))


@writes("rnn")
def rnn(d: Document, node: Node, x: str, weights: str, bias: str, *states: str) -> list[str]:
    cell = node.attrs["cell"]
    if len(states) == 3:
        return _projected(d, node, x, weights, bias, states)
    told: dict[str, Any] = {"activations": ["Relu" if cell == "relu" else "Tanh"]} if cell in ("relu", "tanh") else {}
    if cell == "gru":
        told["linear_before_reset"] = 1
    return _layer(d, node, cell, weights, bias, states, **told)


def _layer(d: Document, node: Node, cell: str, weights: str, bias: str, states: tuple[str, ...],
           **attrs: Any) -> list[str]:
    """The layer of these weights [G*H, H] and bias [G*H] of the state."""
    found = _inputs(d, node.inputs[0])
    both = _joined(d, _in_order(d, found.bias, cell), _in_order(d, bias, cell), axis=1)
    values = node.inputs[-len(states):]
    first = [d.reshaped(state, (1, *value.shape)) for state, value in zip(states, values, strict=True)]
    results = d.add(_OPERATORS[cell], found.x, _in_order(d, found.weights, cell), _in_order(d, weights, cell), both, "",
                    *first, outputs=len(node.outputs), hidden_size=int(values[0].shape[-1]),
                    direction="reverse" if node.attrs["reverse"] else "forward", **attrs)
    return [d.reshaped(name, value.shape) for name, value in zip(results, node.outputs, strict=True)]


def _projected(d: Document, node: Node, x: str, weights: str, bias: str, states: tuple[str, ...]) -> list[str]:
    """ONNX's LSTM projects no state: a Scan does."""
    h, c, projection = states
    element = helper.np_dtype_to_tensor_dtype(node.outputs[0].element.numpy)
    outer = (weights, bias, projection)
    step: list[tuple[str, list[str], list[str], dict[str, Any]]] = [
        ("Gemm", ["h", weights, bias], ["product"], {"transB": 1}),
        ("Add", ["gates_in", "product"], ["gates"], {}),
        ("Split", ["gates"], ["i", "f", "g", "o"], {"axis": 1, **({"num_outputs": 4} if d.opset >= 18 else {})}),
        ("Sigmoid", ["i"], ["i_"], {}), ("Sigmoid", ["f"], ["f_"], {}), ("Sigmoid", ["o"], ["o_"], {}),
        ("Tanh", ["g"], ["g_"], {}), ("Mul", ["f_", "c"], ["kept"], {}), ("Mul", ["i_", "g_"], ["new"], {}),
        ("Add", ["kept", "new"], ["c_out"], {}), ("Tanh", ["c_out"], ["c_"], {}), ("Mul", ["o_", "c_"], ["whole"], {}),
        ("Gemm", ["whole", projection], ["h_out"], {"transB": 1}), ("Identity", ["h_out"], ["y"], {}),
    ]
    inputs = [helper.make_tensor_value_info(name, element, None) for name in ("h", "c", "gates_in")]
    outputs = [helper.make_tensor_value_info(name, element, None) for name in ("h_out", "c_out", "y")]
    prefix = d.fresh("step")
    inner = {name for _, operands, results, _ in step for name in (*operands, *results)} - set(outer)

    def called(name: str) -> str:
        return f"{prefix}_{name}" if name in inner else name

    for value in (*inputs, *outputs):
        value.name = called(value.name)
    nodes = [helper.make_node(op, list(map(called, operands)), list(map(called, results)), **attrs)
             for op, operands, results, attrs in step]
    body = helper.make_graph(nodes, prefix, inputs, outputs)
    backwards = int(node.attrs["reverse"])
    last_h, last_c, out = d.add("Scan", h, c, x, outputs=3, body=body, num_scan_inputs=1,
                                scan_input_directions=[backwards], scan_output_directions=[backwards])
    return [out, last_h, last_c]


@writes("gru_reset_first")
def gru_reset_first(d: Document, node: Node, x: str, weights: str, bias: str, own: str, own_bias: str,
                    h: str) -> list[str]:
    return _layer(d, node, "gru", _joined(d, weights, own, axis=0), _joined(d, bias, own_bias, axis=0), (h,),
                  linear_before_reset=0)


@writes("lstm_cell")
def lstm_cell(d: Document, node: Node, x: str, product: str, c: str) -> list[str]:
    i, f, g, o = d.split(d.add("Add", x, product), 4, axis=1)
    kept = d.add("Mul", d.add("Sigmoid", f), c)
    new = d.add("Add", kept, d.add("Mul", d.add("Sigmoid", i), d.add("Tanh", g)))
    return [d.add("Mul", d.add("Sigmoid", o), d.add("Tanh", new)), new]


@writes("gru_cell")
def gru_cell(d: Document, node: Node, x: str, product: str, h: str) -> str:
    (xr, xz, xn), (pr, pz, pn) = d.split(x, 3, axis=1), d.split(product, 3, axis=1)
    reset, update = d.add("Sigmoid", d.add("Add", xr, pr)), d.add("Sigmoid", d.add("Add", xz, pz))
    new = d.add("Tanh", d.add("Add", xn, d.add("Mul", reset, pn)))
    return str(d.add("Add", new, d.add("Mul", update, d.add("Sub", h, new))))

