"""The table of rules: which MXNet operator lowers how.

    @rule("FullyConnected", parameters=(1, 2))
    def fully_connected(b, inputs, attrs, node):
        ...
        return value                      # or one value for each output

A rule appends IR to `b`, and raises UnsupportedError with the reason when it can't lower the node. It serves all
names of its operator. Operators that stay with MXNet on purpose stand in `left.py`, each with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.mxnet_bridge.aliases import canonical
from ngraph_mxnet.mxnet_bridge.attrs import Attrs
from ngraph_mxnet.mxnet_bridge.symbol_json import SymbolNode

Lowering = Callable[[Builder, list[Value], Attrs, SymbolNode], "Value | Sequence[Value]"]


@dataclass(frozen=True)
class Rule:
    """How one MXNet operator lowers.

    `operands`: (least, most) inputs. `parameters`: the inputs that hold weights, which seldom change.
    `ignored`: attributes that do not change what inference computes.
    """

    names: tuple[str, ...]
    lower: Lowering
    operands: tuple[int, int]
    parameters: frozenset[int]
    ignored: tuple[str, ...]

    @property
    def doc(self) -> str:
        return (self.lower.__doc__ or "").strip()


ANY = 1 << 20

_RULES: dict[str, Rule] = {}


def add_rule(lower: Lowering, *names: str, operands: int | tuple[int, int] = (0, ANY),
             parameters: Sequence[int] = (), ignored: Sequence[str] = ()) -> None:
    """Register `lower` for the MXNet operators `names`, one name each; a second rule for one is an error."""
    span = operands if isinstance(operands, tuple) else (operands, operands)
    record = Rule(names, lower, span, frozenset(parameters), tuple(ignored))
    for name in dict.fromkeys(map(canonical, names)):
        if name in _RULES:
            raise ValueError(f"MXNet operator {name} has two rules")
        _RULES[name] = record


def rule(*names: str, operands: int | tuple[int, int] = (0, ANY), parameters: Sequence[int] = (),
         ignored: Sequence[str] = ()) -> Callable[[Lowering], Lowering]:
    """Decorator form of `add_rule`."""

    def declare(lower: Lowering) -> Lowering:
        add_rule(lower, *names, operands=operands, parameters=parameters, ignored=ignored)
        return lower

    return declare


def find_rule(op: str) -> Rule | None:
    """The rule for the MXNet operator `op`, if there is one."""
    return all_rules().get(canonical(op))


def all_rules() -> dict[str, Rule]:
    """Every rule, by the canonical name of its MXNet operator."""
    import ngraph_mxnet.mxnet_bridge.rules  # noqa: F401  (registers them)

    return _RULES
