"""From the body of a `fused` node to steps: what is computed for every element, layouts left open."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.opdef import OpDef
from ngraph_mxnet.ir.types import Shape, f32
from ngraph_mxnet.passes.clusters import Clusters
from ngraph_mxnet.targets.cpu.codegen.spec import REDUCTIONS, SCRATCH_BYTES, Step
from ngraph_mxnet.targets.cpu.params.strided import EXPRESSIONS
from ngraph_mxnet.targets.cpu.planning.layout import is_blocked_concat


class Read(NamedTuple):
    """Operand `parameter` of the node, seen as `shape`: aligned with the space to the right, as NumPy does."""

    parameter: int
    shape: Shape


@dataclass
class Description:
    """`reads` are the kernel's input tensors; `results` the steps of the body's results, in order.

    `rows` is the number of trailing axes that reductions reduce, 0 without any.
    """

    shape: Shape
    rows: int
    reads: list[Read] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    @property
    def outer(self) -> Shape:
        return self.shape[: len(self.shape) - self.rows]


def has_steps(op: OpDef) -> bool:
    """True if elementwise steps compute the op. Each step is an expression of a kernel or a conversion."""
    return op.name in EXPRESSIONS or op.name in ("convert", "scale_shift")


def describe(body: Graph) -> Description | None:
    """The description of a body as `passes.clusters` makes them; None for another."""
    space = _space(body)
    if space is None or not body.results:
        return None
    describing = _Describing(Description(*space), body)
    for node in body.nodes:
        if not describing.add(node):
            return None
    made = describing.made
    if any(value not in made for value in body.results):
        return None  # a parameter returned as it is
    describing.description.results = [made[value] for value in body.results]
    return describing.description


def _space(body: Graph) -> tuple[Shape, int] | None:
    """Shape and rows."""
    for node in body.nodes:
        rank = node.inputs[0].type.rank if node.inputs else 0
        if node.op.name in REDUCTIONS:
            return node.inputs[0].shape, len(node.attrs["axes"])
        if node.op.kind == "row":
            return (node.inputs[0].shape, 1) if rank else None
    shapes = {node.output.shape for node in body.nodes if node.op.name != "constant" and len(node.outputs) == 1}
    return (shapes.pop(), 0) if len(shapes) == 1 else None


class _Describing:
    def __init__(self, description: Description, body: Graph) -> None:
        self.description = description
        self.made: dict[Value, int] = {}
        self._parameter = {value: number for number, value in enumerate(body.parameters)}
        self._loads: dict[Read, int] = {}

    def add(self, node: Node) -> bool:
        """Append the steps of a node; False when it does not fit."""
        if any(v.type.element.name not in ("f32", "bool") for v in (*node.inputs, *node.outputs)):
            return False
        name = node.op.name
        if name == "constant":
            value = node.attrs["value"]
            if value.size != 1:
                return False
            self.made[node.output] = self._step("constant", parameters=(float(value.reshape(-1)[0]),),
                                                element=node.output.type.element.name)
            return True
        if node.op.kind == "row" or name in REDUCTIONS:
            return self._add_row_op(node)
        if not has_steps(node.op) or node.output.shape not in self._shapes():
            return False
        args = [self._operand(value, self._seen(node, position)) for position, value in enumerate(node.inputs)]
        if None in args:
            return False
        if name == "scale_shift":
            self.made[node.output] = self._scale_shift(node, *args)
        else:
            parameters = () if name == "convert" else tuple(float(node.attrs[key]) for key in node.op.schema)
            self.made[node.output] = self._step(name, *args, parameters=parameters,
                                                element=node.output.type.element.name)
        return True

    def _shapes(self) -> tuple[Shape, ...]:
        """The shape of full values, then those of the two kinds of row values."""
        shape, rows, outer = self.description.shape, self.description.rows, self.description.outer
        return (shape, outer + (1,) * rows, outer) if rows else (shape,)

    def _seen(self, node: Node, position: int) -> Shape:
        """The operand's shape as NumPy broadcasts it against the space."""
        shape = node.inputs[position].shape
        if node.op.name == "scale_shift" and position:
            shape += (1,) * (node.output.type.rank - 2)
        # Values of one element a row may lack the rows' axes.
        return shape + (1,) * (len(self.description.shape) - node.output.type.rank)

    def _operand(self, value: Value, seen: Shape) -> int | None:
        if value in self.made:
            return self.made[value] if value.shape in self._shapes() or value.type.size == 1 else None
        return self._load(value, seen)

    def _load(self, value: Value, seen: Shape) -> int | None:
        read = Read(self._parameter[value], seen)
        if read not in self._loads:
            self._loads[read] = self._step("load", len(self.description.reads), element=value.type.element.name)
            self.description.reads.append(read)
        return self._loads[read]

    def _step(self, op: str, *args: int | None, parameters: tuple[float, ...] = (), element: str = "f32") -> int:
        self.description.steps.append(Step(op, args, parameters, element))  # type: ignore[arg-type]
        return len(self.description.steps) - 1

    def _scale_shift(self, node: Node, data: int | None, scale: int | None, shift: int | None) -> int:
        value = self._step("add", self._step("multiply", data, scale), shift)
        return self._step("clamp", value, parameters=(node.attrs["lower"], node.attrs["upper"]))

    def _add_row_op(self, node: Node) -> bool:
        shape, rows = self.description.shape, self.description.rows
        rank, data = len(shape), node.inputs[0]
        axes = node.attrs.get("axes", (node.attrs.get("axis"),))
        if data.shape != shape or sorted(a % rank for a in axes) != list(range(rank - rows, rank)):
            return False
        if data.type.element.name != "f32" or not prod(shape):
            return False
        x = self._operand(data, data.shape)
        if x is None:
            return False
        if node.op.name in REDUCTIONS:
            self.made[node.output] = self._step(node.op.name, x)
        elif node.op.name == "layer_norm":
            gamma, beta = (self._operand(v, v.shape) for v in node.inputs[1:])
            if gamma is None or beta is None:
                return False
            self.made[node.output] = self._layer_norm(x, gamma, beta, node.attrs["epsilon"])
        elif node.op.name in ("softmax", "log_softmax"):
            self.made[node.output] = self._softmax(x, logarithm=node.op.name == "log_softmax")
        return node.output in self.made

    def _layer_norm(self, x: int, gamma: int, beta: int, epsilon: float) -> int:
        centred = self._step("subtract", x, self._step("reduce_mean", x))
        variance = self._step("reduce_mean", self._step("square", centred))
        spread = self._step("rsqrt", self._step("add", variance, self._step("constant", parameters=(epsilon,))))
        return self._step("add", self._step("multiply", self._step("multiply", centred, spread), gamma), beta)

    def _softmax(self, x: int, *, logarithm: bool) -> int:
        shifted = self._step("subtract", x, self._step("reduce_max", x))
        power = self._step("exp", shifted)
        total = self._step("reduce_sum", power)
        if logarithm:
            return self._step("subtract", shifted, self._step("log", total))
        return self._step("multiply", power, self._step("reciprocal", total))


_MOST_ROW = SCRATCH_BYTES // 4 // 4


def cluster_pass() -> Clusters:
    """The pass that makes `fused` nodes for the generated kernels."""
    return Clusters(_is_elementwise, _is_row_op, _images, _MOST_ROW)


def _is_row_op(node: Node) -> bool:
    return (node.op.name in REDUCTIONS or node.op.kind == "row") and _has_types(node)


def _is_elementwise(node: Node) -> bool:
    if node.op.name == "scale_shift" and node.output.type.rank > 4:
        return False
    return has_steps(node.op) and _has_types(node) and _has_expression(node) and node.output.type.size > 0


def _has_expression(node: Node) -> bool:
    """Comparisons and choices between bool have none."""
    operands = node.inputs[1:] if node.op.name == "select" else node.inputs
    return node.op.kind in ("copy", "logical") or all(value.type.element is f32 for value in operands)


def _has_types(node: Node) -> bool:
    return all(v.type.element.name in ("f32", "bool") for v in (*node.inputs, *node.outputs))


def _images(graph: Graph) -> set[Value]:
    """Return the values that are likely to be in the blocked layout, in which rows are not contiguous."""
    found: set[Value] = set()
    for node in graph.nodes:
        if _makes_images(node) or (_is_elementwise(node) and any(v in found for v in node.inputs)):
            found.update(v for v in node.outputs if v.type.rank > 2)
    return found


def _makes_images(node: Node) -> bool:
    images = node.op.kind in ("convolution", "pool", "resampling") or node.op.name in ("scale_shift", "quantize")
    return images or is_blocked_concat(node)
