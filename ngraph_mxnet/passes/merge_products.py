"""Products of few rows with the same weights become one: of all steps' inputs of an unrolled recurrent layer."""

from __future__ import annotations

from collections.abc import Hashable

from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.sizes import at_hand
from ngraph_mxnet.passes.pattern import join_origins

_MOST_ROWS = 64
"""A product of more rows reads its weights often enough by itself."""


class MergeProducts:
    """matmul(x1, W), matmul(x2, W), ... -> slices of matmul(concat(x1, x2, ...), W), with bias or without.

    Only of those that need no other one's result. So weights are read once, not once a step.
    """

    name = "merge_products"

    def run(self, graph: Graph) -> bool:
        groups: dict[Hashable, list[Node]] = {}
        for node in graph.nodes:
            if node.op.kind == "product" and _is_narrow(node):
                others = tuple(map(id, node.inputs[1:]))
                groups.setdefault((node.op.name, *node.attrs.values(), others), []).append(node)
        changed = False
        for members in groups.values():
            members = _independent(graph, members) if len(members) > 1 else members
            if len(members) > 1:
                _merge(graph, members)
                changed = True
        return changed


def _is_narrow(node: Node) -> bool:
    left, right = node.inputs[:2]
    return (left.type.rank == right.type.rank == 2 and not node.attrs["transpose_a"]
            and 0 < at_hand(left.shape[0]) <= _MOST_ROWS)


def _independent(graph: Graph, members: list[Node]) -> list[Node]:
    """The members that depend on no other."""
    tainted: set[Value] = set()
    wanted, found = set(members), []
    for node in graph.nodes:
        if any(v in tainted for v in node.inputs):
            tainted.update(node.outputs)
        elif node in wanted:
            found.append(node)
            tainted.update(node.outputs)
    return found


def _merge(graph: Graph, members: list[Node]) -> None:
    """One product in place of the first member; the graph is put in order again."""
    first, origin = members[0], join_origins(members)
    rows = make_node("concat", [node.inputs[0] for node in members], {"axis": 0}, origin)
    product = make_node(first.op.name, [rows.output, *first.inputs[1:]], first.attrs, origin)
    made, replaced, begin = [rows, product], {}, 0
    for node in members:
        count, columns = node.output.shape
        bounds = {"begin": (begin, 0), "end": (begin + count, columns)}
        part = make_node("slice", [product.output], bounds, node.origin)
        replaced[node.output] = part.output
        made.append(part)
        begin += count
    at, gone = graph.nodes.index(first), set(members)
    graph.nodes[at:at] = made
    graph.nodes = [node for node in graph.nodes if node not in gone]
    graph.replace(replaced)
    graph.sort()
