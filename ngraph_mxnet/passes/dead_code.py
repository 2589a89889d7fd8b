"""Dead code: drops the nodes that no result needs."""

from __future__ import annotations

from ngraph_mxnet.ir.graph import Graph


class DeadCode:
    """Parameters stay, read or not: they are the graph's signature."""

    name = "dead_code"

    def run(self, graph: Graph) -> bool:
        before = len(graph.nodes)
        graph.remove_dead()
        return len(graph.nodes) != before
