"""The verifier: what must hold for every graph between passes."""

from __future__ import annotations

from ngraph_mxnet.errors import GraphError, TypeRuleError
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.sizes import relying
from ngraph_mxnet.ir.types import Role


def verify(graph: Graph) -> None:
    """Check definition before use, single definition, attribute schemas, and that stored types are the inferred ones.

    Graphs in attributes are verified too.

    Raises:
        GraphError: with the node and the lines of IR around it.
    """
    defined: set[Value] = set()
    names: set[str] = set()
    for parameter in graph.parameters:
        if parameter.node is not None or parameter in defined:
            raise GraphError(f"graph {graph.name}: parameter {parameter.name!r} is not a fresh parameter")
        if parameter.name in names:
            raise GraphError(f"graph {graph.name}: two parameters are called {parameter.name!r}")
        if parameter.role is Role.MADE:
            raise GraphError(f"graph {graph.name}: parameter {parameter.name!r} has the role {parameter.role.value}")
        defined.add(parameter)
        names.add(parameter.name)
    with relying(graph.guards):
        _verify_nodes(graph, defined)
    for position, result in enumerate(graph.results):
        if result not in defined:
            raise GraphError(f"graph {graph.name}: result {position} is not defined in it")


def _verify_nodes(graph: Graph, defined: set[Value]) -> None:
    for node in graph.nodes:
        for position, operand in enumerate(node.inputs):
            if operand not in defined:
                raise _error(graph, node, f"operand {position} is used before it is defined, or is of another graph")
        for value in node.attrs.values():
            if isinstance(value, Graph):
                verify(value)
        try:
            attrs = node.op.check_attrs(node.attrs)
            types = node.op.infer([v.type for v in node.inputs], attrs)
        except TypeRuleError as error:
            raise _error(graph, node, str(error)) from None
        if types != [v.type for v in node.outputs]:
            found = ", ".join(str(v.type) for v in node.outputs)
            raise _error(graph, node, f"outputs are {found}, the type rule gives {', '.join(map(str, types))}")
        for index, output in enumerate(node.outputs):
            if output in defined or output.node is not node or output.index != index:
                raise _error(graph, node, f"output {index} is not its own")
            defined.add(output)


def _error(graph: Graph, node: Node, what: str) -> GraphError:
    from ngraph_mxnet.ir.printer import neighbourhood

    return GraphError(f"graph {graph.name}, node {node}: {what}\n{neighbourhood(graph, node)}")
