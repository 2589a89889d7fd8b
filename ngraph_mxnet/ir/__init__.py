"""The intermediate representation: types, ops, graphs, and their text."""

from ngraph_mxnet.ir.graph import Builder, Graph, Node, Value, count_ops, print_graph, verify
from ngraph_mxnet.ir.opdef import OpDef, all_ops, get_op, ops_of, register_op
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.ir.types import ElementType, TensorType, element_type

__all__ = [
    "Builder", "ElementType", "Graph", "Node", "OpDef", "TensorType", "Value", "all_ops", "count_ops",
    "element_type", "get_op", "ops_of", "parse_graph", "print_graph", "register_op", "verify",
]
