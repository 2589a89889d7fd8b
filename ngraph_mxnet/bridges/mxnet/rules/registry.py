"""The table of rules: which MXNet operator lowers how.

    @rule("FullyConnected", parameters=(1, 2))
    def fully_connected(b, inputs, attrs, node):
        ...
        return value                      # or one value for each output

`types` says which element types it takes, and in which it computes. A rule appends IR to `b`, and raises
UnsupportedError with the reason when it can't lower the node. It serves all names of its operator. Operators that stay
with MXNet on purpose stand in `left.py`, each with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ngraph_mxnet import outside
from ngraph_mxnet.bridges.mxnet.symbols.aliases import canonical
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType

TypedBy = int | Callable[[Sequence[ElementType]], int]
Lowering = Callable[[Builder, list[Value], Attrs, SymbolNode], "Value | Sequence[Value]"]


@dataclass(frozen=True)
class Types:
    """The element types that a rule's inputs may have, and what the importer does about them.

    `in_f32`: those that are converted to f32 before the rule sees them; if input `Rule.typed_by` is one of these, the
    rule's f32 results are converted back to its type. `moves`: nothing is computed, so f16 is converted only where it
    lives in f32 already (`bridges/mxnet/symbols/half.py`).
    """

    elements: tuple[str, ...]
    in_f32: tuple[str, ...] = ("f16",)
    moves: bool = False


_INTEGERS = ("i32", "i64", "i8", "u8")
_NUMBERS = ("f16", "f32", "f64", *_INTEGERS)

COMPUTED = Types(("f16", "f32"))
FLOATS = Types(("f16", "f32", "f64"))
NUMBERS = Types(_NUMBERS)
"""Integers too, in which the rule adds and multiplies."""
MATHS = Types(_NUMBERS, in_f32=("f16", *_INTEGERS))
"""MXNet's functions compute floats of integers and cut the result off."""
MOVED = Types((*_NUMBERS, "bool"), moves=True)
"""Every type; results have the type of input `typed_by`."""
EXACT = Types((*_NUMBERS, "bool"), in_f32=())
"""Every type as it is, f16 included: the rule sees to the types of its results."""
LOGIC = Types((*_NUMBERS, "bool"))
"""Every type. f16 is computed in f32, and an f32 result of f16 inputs becomes f16 again."""


@dataclass(frozen=True)
class Rule:
    """How one MXNet operator lowers.

    `operands`: (least, most) inputs. `parameters`: the inputs that hold weights, which seldom change.
    `ignored`: attributes that do not change what inference computes. `typed_by`: the input whose element type the
    results have (see `Types`), or how to find it from the inputs' element types. `result`: the attribute that, where it
    is set, names the results' element type.
    """

    names: tuple[str, ...]
    lower: Lowering
    operands: tuple[int, int]
    parameters: frozenset[int]
    ignored: tuple[str, ...]
    types: Types = COMPUTED
    typed_by: TypedBy = 0
    result: str = ""

    @property
    def doc(self) -> str:
        return (self.lower.__doc__ or "").strip()


ANY = 1 << 20

_RULES: dict[str, Rule] = {}


def add_rule(lower: Lowering, *names: str, operands: int | tuple[int, int] = (0, ANY),
             parameters: Sequence[int] = (), ignored: Sequence[str] = (), types: Types = COMPUTED,
             typed_by: TypedBy = 0, result: str = "") -> None:
    """Register `lower` for the MXNet operators `names`, one name each; a second rule for one is an error."""
    span = operands if isinstance(operands, tuple) else (operands, operands)
    record = Rule(names, lower, span, frozenset(parameters), tuple(ignored), types, typed_by, result)
    for name in dict.fromkeys(map(canonical, names)):
        if name in _RULES:
            raise ValueError(f"MXNet operator {name} has two rules")
        _RULES[name] = record
    outside.note(lower)


def rule(*names: str, operands: int | tuple[int, int] = (0, ANY), parameters: Sequence[int] = (),
         ignored: Sequence[str] = (), types: Types = COMPUTED,
         typed_by: TypedBy = 0, result: str = "") -> Callable[[Lowering], Lowering]:
    """Decorator form of `add_rule`."""

    def declare(lower: Lowering) -> Lowering:
        add_rule(lower, *names, operands=operands, parameters=parameters, ignored=ignored, types=types,
                 typed_by=typed_by, result=result)
        return lower

    return declare


def moves(*names: str, operands: int | tuple[int, int] = (0, ANY), parameters: Sequence[int] = (),
          ignored: Sequence[str] = (), typed_by: TypedBy = 0) -> Callable[[Lowering], Lowering]:
    """`rule` for an operator that moves elements of any type and computes nothing."""
    return rule(*names, operands=operands, parameters=parameters, ignored=ignored, types=MOVED, typed_by=typed_by)


def find_rule(op: str) -> Rule | None:
    """The rule for the MXNet operator `op`, if there is one."""
    return all_rules().get(canonical(op))


def all_rules() -> dict[str, Rule]:
    """Every rule, by the canonical name of its MXNet operator.

    Importing this module imports its package, and so all families.
    """
    return _RULES
