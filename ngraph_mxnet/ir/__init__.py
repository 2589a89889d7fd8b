"""The intermediate representation: types, ops, graphs, and their text."""

from ngraph_mxnet.ir.builder import Builder
from ngraph_mxnet.ir.graph import Graph, Node, Value, count_ops
from ngraph_mxnet.ir.op_table import all_ops, get_op, ops_of
from ngraph_mxnet.ir.opdef import OpDef, register_op
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.ir.printer import print_graph
from ngraph_mxnet.ir.types import ElementType, TensorType, element_type
from ngraph_mxnet.ir.verify import verify

__all__ = [
    "Builder", "ElementType", "Graph", "Node", "OpDef", "TensorType", "Value", "all_ops", "count_ops",
    "element_type", "get_op", "ops_of", "parse_graph", "print_graph", "register_op", "verify",
]
