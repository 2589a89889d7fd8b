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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ngraph_mxnet import outside
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs, canonical
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import iota, scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, element_type

TypedBy = int | Callable[[Sequence[ElementType]], int]
Lowering = Callable[[Builder, list[Value], Attrs, SymbolNode], "Value | Sequence[Value]"]


@dataclass(frozen=True)
class Types:
    """The element types that a rule's inputs may have, and what the importer does about them.

    `in_f32`: those that are converted to f32 before the rule sees them; if input `Rule.typed_by` is one of these, the
    rule's f32 results are converted back to its type. `moves`: nothing is computed, so f16 is converted only where it
    lives in f32 already (`bridges/mxnet/symbols/attrs.py`).
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


def normal_axis(axis: int, rank: int) -> int:
    """`axis` in [0, rank)."""
    if not -rank <= axis < rank:
        raise UnsupportedError(f"axis {axis} is outside rank {rank}")
    return axis % rank


def normal_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Sorted, distinct, in [0, rank)."""
    result = tuple(sorted({normal_axis(axis, rank) for axis in axes}))
    return result


def positive(value: int, name: str) -> int:
    """`value`, if it is at least 1: MXNet's own checks, made when it loads a model, may not have seen it.

    Raises:
        UnsupportedError: it is less.
    """
    if value < 1:
        raise UnsupportedError(f"{name}={value}, expected at least 1")
    return value


def image_shape(x: Value) -> tuple[int, ...]:
    """The shape (N, C, H, W) of images.

    Raises:
        UnsupportedError: the rank is not 4.
    """
    if len(x.shape) != 4:
        raise UnsupportedError(f"found {x.type}, expected rank 4")
    return x.shape


def bias_of(inputs: list[Value], no_bias: bool) -> Value | None:
    """The third input unless `no_bias`."""
    if no_bias:
        return None
    if len(inputs) < 3:
        raise UnsupportedError("no_bias=False, but there is no bias input")
    return inputs[2]


def per_axis(values: tuple[int, ...], count: int, fill: int, name: str) -> tuple[int, ...]:
    """`values`, or `count` times `fill` where MXNet leaves them empty."""
    if len(values) not in (0, count):
        raise UnsupportedError(f"{name}={values} has {len(values)} entries for {count} spatial axes")
    return values or (fill,) * count


def at_least_1d(b: Builder, value: Value) -> Value:
    """MXNet (outside mx.np) has no rank 0: a full reduction gives shape (1,)."""
    return value if value.shape else b.reshape(value, shape=(1,))


def as_indices(b: Builder, value: Value) -> Value:
    """Indices of any number type as i64; MXNet cuts fractions off."""
    return b.convert(value, element="i64")


def truth(b: Builder, x: Value) -> Value:
    """bool: x != 0, which holds for NaN."""
    if x.type.element.numpy.kind == "b":
        return x
    return b.not_equal(x, scalar(b, 0, x))


def as_number(b: Builder, condition: Value, like: Value) -> Value:
    """`condition`, or any numbers, in the element type of `like`: MXNet's comparisons keep their operands' type."""
    return b.convert(condition, element=like.type.element)


def as_type(b: Builder, x: Value, element: ElementType) -> Value:
    """`x` in `element`, which it may have already."""
    return x if x.type.element is element else b.convert(x, element=element)


def within_length(b: Builder, x: Value, lengths: Value, axis: int) -> Value:
    """bool, broadcastable to x: whether a position along `axis` is below its length.

    `lengths`: whole numbers in the shape of x without `axis`, of any number type, below 2**24.
    """
    shape = list(x.shape)
    if lengths.shape != (*shape[:axis], *shape[axis + 1:]):
        raise UnsupportedError(f"lengths {lengths.type} for axis {axis} of {x.type}")
    column = b.reshape(lengths, shape=(*shape[:axis], 1, *shape[axis + 1:]))
    return b.less(iota(b, shape[axis], axis, len(shape), "f32"), b.convert(column, element=element_type("f32")))
