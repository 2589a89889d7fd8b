"""An ONNX model while it is written: nodes, initialisers, sizes; and the table of what each op is in ONNX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.sizes import Atom, Dim
from ngraph_mxnet.ir.types import ElementType, element_type

Writer = Callable[..., "str | Sequence[str]"]
"""Takes the document, the node and the names of its operands; writes nodes, and returns the names of their results."""
WRITERS: dict[str, Writer] = {}
"""By the op's name."""

_GROWTH, _SMALL = 4, 1 << 16
"""What follows from weights is computed here if it has at most so many times their bytes, or so many bytes."""

_STAYS = "dequantize"
"""The op that is written also where its operands are known."""

NARROW = ("i8", "u8")
"""Integers that most ONNX runtimes don't compute with."""


def writes(*ops: str) -> Callable[[Writer], Writer]:
    """Decorator: the function writes these ops."""
    def decorated(writer: Writer) -> Writer:
        WRITERS.update(dict.fromkeys(ops, writer))
        return writer

    return decorated


class Document:
    """What is written so far. `node` is what is written now, whose name messages and new names have.

    Args:
        opset: of the operators.
        sizes: for each symbol of the graph's sizes, an input and an axis that has it.
        taken: names that inputs, weights and results have.
    """

    def __init__(self, opset: int, sizes: Mapping[Atom, tuple[str, int]], taken: Sequence[str]) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.names: dict[Value, str] = {}
        """What the values that were met are called."""
        self.initialisers: dict[str, np.ndarray] = {}
        self.scaled: dict[str, tuple[str, str, str, int | None]] = {}
        """By the name of what a DequantizeLinear gives: the numbers, scale, zero point, and the axis of these."""
        self.drawn: Any = 0
        """How many of the random numbers that the state stands for were read."""
        self.node: Node | None = None
        self._sizes = sizes
        self._taken = set(taken)
        self._constants: dict[tuple[Any, ...], str] = {}
        self._computed: dict[Any, str] = {}

    # Names

    def fresh(self, wanted: str) -> str:
        """A name that nothing has yet."""
        name, number = wanted, 1
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def _title(self) -> str:
        """What the node that is written is called: its name in the framework, else its op."""
        if self.node is None:
            return "shape"
        words = self.node.origin.split(":", 1)[-1].split()
        return words[0] if words else self.node.op.name

    def refuse(self, reason: str) -> UnsupportedError:
        """The error that the node can't be said in ONNX."""
        return UnsupportedError(f"{self.node}: {reason}")

    def require_opset(self, least: int, what: str) -> None:
        """Raises UnsupportedError: the opset is lower."""
        if self.opset < least:
            raise self.refuse(f"{what} is in ONNX since opset {least}, and opset {self.opset} is written")

    # Graphs

    def write(self, nodes: Iterable[Node]) -> list[str]:
        """Write nodes. Return why some can't be written, of each kind one."""
        refused: dict[str, str] = {}
        for node in nodes:
            self.node = node
            operands = [self.names[value] for value in node.inputs]
            arrays = self._folded(node, operands)
            if arrays is not None:
                found: Any = [self.constant(array) for array in arrays]
            else:
                try:
                    if node.op.name not in WRITERS:
                        raise self.refuse("ONNX has no operators that compute it")
                    found = WRITERS[node.op.name](self, node, *operands)
                except UnsupportedError as error:
                    refused.setdefault(str(error).split(": ", 1)[-1] + node.op.name, str(error))
                    found = [self.fresh("refused") for _ in node.outputs]
            for value, name in zip(node.outputs, [found] if isinstance(found, str) else found, strict=True):
                self.names[value] = name
        return list(refused.values())

    def _folded(self, node: Node, operands: list[str]) -> list[np.ndarray] | None:
        """The node's results, if they follow from weights; but none that are far larger than these, and no real numbers
        of bytes: in the file the weights are bytes, too."""
        arrays = [self.array(name) for name in operands]
        if not operands or any(array is None for array in arrays) or node.op.name == _STAYS:
            return None
        known = [array for array in arrays if array is not None]
        types = [value.type for value in node.outputs]
        most = max(_GROWTH * sum(array.nbytes for array in known), _SMALL)
        if any(one.is_symbolic for one in types) or sum(one.bytes for one in types) > most:
            return None
        with np.errstate(all="ignore"):
            return node.op.evaluate(known, node.attrs)

    def body(self) -> Document:
        """A graph within, which reads what is around it. Weights and constants stand outside."""
        within = Document(self.opset, self._sizes, ())
        within.node, within.names = self.node, self.names
        within.initialisers, within.scaled = self.initialisers, dict(self.scaled)
        within._taken, within._constants, within._computed = self._taken, self._constants, dict(self._computed)
        return within

    def place(self, graph: Graph, operands: Sequence[str]) -> list[str]:
        """Write a graph's nodes, with these names of its parameters. Return the names of its results.

        Raises:
            UnsupportedError: some can't be written.
        """
        own, self.names = self.names, dict(zip(graph.parameters, operands, strict=True))
        node = self.node
        try:
            refused = self.write(graph.nodes)
            if refused:
                raise UnsupportedError("\n  ".join(refused))
            return [self.names[value] for value in graph.results]
        finally:
            self.names, self.node = own, node

    def finish(self, inputs: Sequence[onnx.ValueInfoProto], results: Sequence[tuple[str, Value]]) -> onnx.GraphProto:
        """The graph that was begun by `body`. `results`: names, and values of their types."""
        made = {name for node in self.nodes for name in node.output}
        outputs = []
        for name, value in results:
            if name not in made:  # an input's, or one outside, or a result twice
                name = str(self.add("Identity", name))
            made.discard(name)
            outputs.append(described(name, value))
        return helper.make_graph(self.nodes, self.fresh(f"{self._title()}/body"), inputs, outputs)

    # Values

    def add(self, op: str, *operands: str, outputs: int = 1, **attrs: Any) -> Any:
        """Write a node. Return the name of its result, or the names where `outputs` isn't 1. An empty operand is left
        out; attributes of None, too."""
        title = self._title()
        names = [self.fresh(f"{title}_{op.lower()}") for _ in range(outputs)]
        found = {key: value for key, value in attrs.items() if value is not None}
        used = list(operands)
        while used and not used[-1]:
            used.pop()
        self.nodes.append(helper.make_node(op, used, names, name=self.fresh(f"{title}/{op}"), **found))
        return names[0] if outputs == 1 else names

    def put(self, name: str, array: np.ndarray) -> str:
        """Give an initialiser this name."""
        self.initialisers[name] = array
        return name

    def array(self, name: str) -> np.ndarray | None:
        """The numbers of an initialiser; None of what is computed."""
        return self.initialisers.get(name)

    def constant(self, value: Any, element: str | ElementType | None = None) -> str:
        """An initialiser with these numbers; equal small ones are one."""
        array = np.asarray(value)
        if element is not None:
            array = array.astype(element_type(element).numpy)
        key = (array.dtype.str, array.shape, array.tobytes() if array.nbytes <= 1 << 10 else id(array))
        if key not in self._constants:
            self._constants[key] = self.put(self.fresh(f"{self._title()}_constant"), array)
        return self._constants[key]

    def like(self, value: float, other: Value) -> str:
        """A scalar of another value's element type."""
        return self.constant(value, other.element)

    def ints(self, *numbers: int) -> str:
        return self.constant(np.array(numbers, np.int64))

    # What most writers need

    def cast(self, name: str, element: str | ElementType) -> str:
        array = self.array(name)
        if array is not None:
            return self.constant(array, element)
        return str(self.add("Cast", name, to=helper.np_dtype_to_tensor_dtype(element_type(element).numpy)))

    def transposed(self, name: str, order: Sequence[int]) -> str:
        if not order:
            return name
        array = self.array(name)
        if array is not None:
            return self.constant(np.ascontiguousarray(array.transpose(order)))
        if name in self.scaled and self.array(self.scaled[name][0]) is not None:  # weights stay next to their scale
            numbers, scale, zero, axis = self.scaled[name]
            turned = None if axis is None else [place % len(order) for place in order].index(axis)
            return self.dequantized(self.transposed(numbers, order), scale, zero, turned)
        return str(self.add("Transpose", name, perm=list(order)))

    def dequantized(self, numbers: str, scale: str, zero: str, axis: int | None) -> str:
        """`axis`: of which each index has a scale; None of a single one."""
        name = str(self.add("DequantizeLinear", numbers, scale, zero, axis=axis))
        self.scaled[name] = (numbers, scale, zero, axis)
        return name

    def reshaped(self, name: str, shape: Sequence[Any]) -> str:
        array = self.array(name)
        if array is not None and not any(isinstance(size, Dim) for size in shape):
            return self.constant(array.reshape([int(size) for size in shape]))
        zero = any(not isinstance(size, Dim) and size == 0 for size in shape)
        return str(self.add("Reshape", name, self.shape(shape, rest=not zero), allowzero=1 if zero else None))

    def reduced(self, op: str, name: str, axes: Sequence[int], *, keep: bool) -> str:
        """ReduceSum, ReduceMax and their kin: their axes became an operand, of sums first."""
        if self.opset >= (13 if op == "ReduceSum" else 18):
            return str(self.add(op, name, self.ints(*axes), keepdims=int(keep)))
        return str(self.add(op, name, axes=list(axes), keepdims=int(keep)))

    def sliced(self, name: str, axis: int, begin: Any, end: Any, step: int = 1) -> str:
        return str(self.add("Slice", name, self.shape([begin]), self.shape([end]), self.ints(axis), self.ints(step)))

    def split(self, name: str, count: int, axis: int) -> list[str]:
        """Equal parts along an axis."""
        names: list[str] = self.add("Split", name, outputs=count, axis=axis,
                                    num_outputs=count if self.opset >= 18 else None)
        return names

    def clipped(self, name: str, lower: float, upper: float, element: ElementType) -> str:
        """Clip to bounds, of which infinite ones are left out."""
        bounds = ["" if np.isinf(bound) else self.constant(bound, element) for bound in (lower, upper)]
        return str(self.add("Clip", name, *bounds)) if any(bounds) else name

    # Sizes

    def shape(self, sizes: Sequence[Any], *, rest: bool = False) -> str:
        """An int64 vector of sizes.

        Args:
            rest: the last size that is a symbol's may be -1, as Reshape takes it.
        """
        symbolic = [place for place, size in enumerate(sizes) if isinstance(size, Dim)]
        if not symbolic:
            return self.ints(*(int(size) for size in sizes))
        if rest and len(symbolic) == 1:
            return self.ints(*(-1 if isinstance(size, Dim) else int(size) for size in sizes))
        key = ("shape", tuple(str(size) for size in sizes))
        if key not in self._computed:
            self._computed[key] = self.add("Concat", *(self.size(size) for size in sizes), axis=0)
        return self._computed[key]

    def size(self, size: Any) -> str:
        """An int64 vector of one size: of symbols it is computed from the inputs' shapes."""
        if not isinstance(size, Dim):
            return self.ints(int(size))
        key = str(size)
        if key not in self._computed:
            total = ""
            for monomial, factor in size.terms.items():
                product = self.ints(factor) if factor != 1 or not monomial else ""
                for atom in monomial:
                    product = self.add("Mul", product, self._atom(atom)) if product else self._atom(atom)
                total = self.add("Add", total, product) if total else product
            self._computed[key] = total
        return self._computed[key]

    def _atom(self, atom: Atom) -> str:
        if atom in self._computed:
            return self._computed[atom]
        if atom.op == "symbol":
            if atom not in self._sizes:
                raise self.refuse(f"the size {atom} is that of no input")
            name, axis = self._sizes[atom]
            found = self.add("Shape", name, start=axis, end=axis + 1)
        elif atom.op in _SIZES:
            found = _SIZES[atom.op](self, *(self.size(arg) for arg in atom.args))
        else:
            raise self.refuse(f"the size {atom} is computed by {atom.op}, which can't be written")
        self._computed[atom] = found
        return found


def described(name: str, value: Value) -> onnx.ValueInfoProto:
    """An input or output of the value's type. Sizes that are symbols are told by their names."""
    shape = [str(size) if isinstance(size, Dim) else int(size) for size in value.shape]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.element.numpy), shape)


def _divisor(d: Document, by: str) -> str:
    """A size to divide by: 1 in place of 0, as where a condition chooses another size, but both are computed."""
    return by if d.array(by) is not None else str(d.add("Add", by, d.cast(d.add("Equal", by, d.ints(0)), "i64")))


def _floordiv(d: Document, a: str, b: str) -> str:
    """Div truncates, and the dividend may be negative."""
    by = _divisor(d, b)
    return str(d.add("Div", d.add("Sub", a, d.add("Mod", a, by)), by))


_SIZES: dict[str, Callable[..., str]] = {
    "floordiv": _floordiv,
    "mod": lambda d, a, b: str(d.add("Mod", a, _divisor(d, b))),
    "min": lambda d, a, b: str(d.add("Min", a, b)),
    "max": lambda d, a, b: str(d.add("Max", a, b)),
    "positive": lambda d, a: d.cast(d.add("Greater", a, d.ints(0)), "i64"),
    "zero": lambda d, a: d.cast(d.add("Equal", a, d.ints(0)), "i64"),
    "where": lambda d, condition, yes, no: str(d.add("Where", d.cast(condition, "bool"), yes, no)),
}
"""How operations on sizes are written, by the atoms' names."""


# ---- what several families write ------------------------------------------------------------------------


def limited(d: Document, node: Node, x: str, suffix: str = "") -> str:
    """What follows a contraction: the bounds `lower` and `upper`."""
    lower, upper = node.attrs.get("lower" + suffix, -np.inf), node.attrs.get("upper" + suffix, np.inf)
    if (lower, upper) == (0, np.inf):
        return str(d.add("Relu", x))
    return d.clipped(x, lower, upper, node.outputs[0].element)


def by_channel(d: Document, vector: str, rank: int) -> str:
    """A vector [C] that broadcasts along axis 1 of tensors of this rank."""
    array = d.array(vector)
    shape = (-1, *(1,) * (rank - 2))
    if array is not None:
        return d.constant(array.reshape(shape))
    return str(d.add("Reshape", vector, d.ints(*shape)))


def window(d: Document, node: Node) -> dict[str, Any]:
    attrs = node.attrs
    if min(*attrs["pads_begin"], *attrs["pads_end"]) < 0:
        raise d.refuse("its padding is negative")
    return {"kernel_shape": list(node.inputs[1].shape[2:]), "strides": list(attrs["strides"]),
            "dilations": list(attrs["dilations"]), "pads": [*attrs["pads_begin"], *attrs["pads_end"]],
            "group": attrs["groups"]}
