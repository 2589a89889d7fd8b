"""How gradients go back through an op: its adjoint, declared once, in `autodiff/<family>.py`.

    @adjoint("multiply")
    def _(at):
        a, b = at.operands
        return at.head * b, at.head * a          # in the notation of `Expression`

A gradient may be larger than its operand where this was broadcast: it is summed to the operand's shape. None says that
nothing goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ngraph_mxnet.autodiff.expression import Expression
from ngraph_mxnet.ir.graph import Builder, Node, Value

Gradients = Sequence[Expression | None]


class Reverse:
    """A node, seen from behind.

    Attributes:
        operands, results: the node's.
        heads: of each result the gradient, or None where none comes.
    """

    def __init__(self, builder: Builder, node: Node, heads: Sequence[Value | None]) -> None:
        self.builder, self.node = builder, node
        self.operands = [Expression(builder, value) for value in node.inputs]
        self.results = [Expression(builder, value) for value in node.outputs]
        self.heads = [None if head is None else Expression(builder, head) for head in heads]

    @property
    def attrs(self) -> Mapping[str, Any]:
        return self.node.attrs

    @property
    def result(self) -> Expression:
        return self.results[0]

    @property
    def head(self) -> Expression:
        """The gradient of the first result."""
        return self.head_of(0)

    def head_of(self, index: int) -> Expression:
        """The gradient of that result: zeros where none comes."""
        head = self.heads[index]
        return self.results[index].full(0.0) if head is None else head


Adjoint = Callable[[Reverse], Gradients]
Refusal = Callable[[Mapping[str, Any]], "str | None"]

ADJOINTS: dict[str, Adjoint] = {}
NO_DERIVATIVE: dict[str, str] = {}
"""Ops through which nothing goes back, and why that is their derivative."""
REFUSED: dict[str, str] = {}
"""Ops that have a derivative which is not written down here, and why."""
_REFUSALS: dict[str, Refusal] = {}
FORWARD: dict[str, str] = {}
"""Ops in whose place another one goes forward where a gradient comes back: it has the same operands, attributes and
results, and behind these others, which the adjoint reads."""
INTEGERS: set[str] = set()
"""Ops that make integers stand for numbers, or numbers of such integers. The gradient of these integers is of f32, by
the integer, as if it were not rounded. Ops that select elements pass it on; no others do."""


def adjoint(*names: str, refuses: Refusal | None = None, forward: str = "",
            integers: bool = False) -> Callable[[Adjoint], Adjoint]:
    """Decorator: the adjoint of these ops. It gets a `Reverse` and returns a gradient, or None, for each operand.

    `refuses` says of attributes why there is none with them, or None. `forward`: see `FORWARD`;
    `integers`: see `INTEGERS`.
    """

    def declare(function: Adjoint) -> Adjoint:
        for name in names:
            _require_new(name)
            ADJOINTS[name] = function
            if refuses is not None:
                _REFUSALS[name] = refuses
            if forward:
                FORWARD[name] = forward
            if integers:
                INTEGERS.add(name)
        return function

    return declare


def no_derivative(reason: str, *names: str) -> None:
    """Nothing goes back through these ops."""
    for name in names:
        _require_new(name)
        NO_DERIVATIVE[name] = reason


def refuse(reason: str, *names: str) -> None:
    """Record that no gradient can go through these ops, with the reason. A graph that needs such a gradient can't be
    differentiated."""
    for name in names:
        _require_new(name)
        REFUSED[name] = reason


def why_not(op: str, attrs: Mapping[str, Any]) -> str | None:
    """Why no gradient can go back through this op with these attributes, or None."""
    if op in ADJOINTS:
        return _REFUSALS[op](attrs) if op in _REFUSALS else None
    return None if op in NO_DERIVATIVE else REFUSED.get(op, "it has no adjoint in autodiff/")


def _require_new(name: str) -> None:
    if name in ADJOINTS or name in NO_DERIVATIVE or name in REFUSED:
        raise ValueError(f"op {name} has an adjoint already, or a reason for none")

