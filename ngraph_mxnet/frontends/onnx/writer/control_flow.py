"""Loops and choices in ONNX: Scan, Loop and If. Their graphs read what they capture from the graph around them."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

from ngraph_mxnet.frontends.onnx.writer.document import Document, described, writes
from ngraph_mxnet.ir.graph import Graph, Node, Value


def _inputs(d: Document, values: list[Value]) -> list[onnx.ValueInfoProto]:
    return [described(d.fresh(f"{value.name}_in"), value) for value in values]


def _added(d: Document, op: str, node: Node, *operands: str, **attrs: Any) -> list[str]:
    """Write a node with as many results as `node`, whose names are returned."""
    found = d.add(op, *operands, outputs=len(node.outputs), **attrs)
    return [found] if len(node.outputs) == 1 else list(found)


@writes("foreach")
def foreach(d: Document, node: Node, *operands: str) -> list[str]:
    """ONNX gives its body the states first."""
    body, data, states = (node.attrs[name] for name in ("body", "data", "states"))
    fixed, within = data + states, d.body()
    changing = _inputs(within, body.parameters[:fixed])
    results = within.place(body, [*(each.name for each in changing), *operands[fixed:]])
    graph = within.finish([*changing[data:], *changing[:data]], list(zip(results, body.results, strict=True)))
    return _added(d, "Scan", node, *operands[data:fixed], *operands[:data], body=graph, num_scan_inputs=data)


@writes("while_loop")
def while_loop(d: Document, node: Node, *operands: str) -> list[str]:
    """Rows behind the last trip, which ONNX leaves out, are filled in."""
    condition, body, count = (node.attrs[name] for name in ("condition", "body", "variables"))
    (begins,), within, element = d.place(condition, operands), d.body(), onnx.TensorProto
    number, goes_on = (helper.make_tensor_value_info(within.fresh(name), type_, ())
                       for name, type_ in (("trip", element.INT64), ("goes_on", element.BOOL)))
    variables = _inputs(within, body.parameters[:count])
    results = within.place(body, [*(each.name for each in variables), *operands[count:]])
    continues, = within.place(condition, [*results[:count], *operands[count:]])
    graph = within.finish([number, goes_on, *variables], [
        (continues, condition.results[0]), *zip(results, body.results, strict=True)])
    trips = node.attrs["trips"]
    names = _added(d, "Loop", node, d.constant(trips, "i64"), begins, *operands[:count], body=graph)
    return [*names[:count], *(_filled(d, name, value, trips)
                              for name, value in zip(names[count:], node.outputs[count:], strict=True))]


def _filled(d: Document, rows: str, value: Value, trips: int) -> str:
    """Rows of 0 behind those that are there."""
    missing = d.add("Sub", d.ints(trips), d.add("Shape", rows, start=0, end=1))
    zeros = (0,) * (value.rank - 1)
    sizes = d.add("Concat", d.ints(0, *zeros), missing, *([d.ints(*zeros)] if zeros else []), axis=0)
    return str(d.add("Pad", rows, sizes, d.like(0, value)))


@writes("cond")
def cond(d: Document, node: Node, flag: str, *operands: str) -> list[str]:
    return _added(d, "If", node, flag, then_branch=_branch(d, node.attrs["then"], operands),
                  else_branch=_branch(d, node.attrs["otherwise"], operands))


def _branch(d: Document, graph: Graph, operands: tuple[str, ...]) -> onnx.GraphProto:
    within = d.body()
    results = within.place(graph, operands)
    return within.finish([], list(zip(results, graph.results, strict=True)))
