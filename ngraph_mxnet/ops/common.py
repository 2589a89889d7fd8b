"""Parts that the op families share: type relations, and helpers for references."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import TypeRuleError
from ngraph_mxnet.ir.opdef import Arity, Attrs, OpDef, Reference, TypeRule, register_op
from ngraph_mxnet.ir.sizes import are_same_shape, cached, is_one
from ngraph_mxnet.ir.types import Attribute, Bool, ElementType, Float, Shape, TensorType

Types = Sequence[TensorType]
Arrays = Sequence[np.ndarray]

# An op's domain: the NumPy kinds of the element types that it takes.
FLOAT, NUMBER, BOOL, INTEGER, ANY = "f", "fiu", "b", "iu", "fiub"
_DOMAIN_TEXT = {
    FLOAT: "f16, f32 or f64",
    NUMBER: "a number type",
    BOOL: "bool",
    INTEGER: "an integer type",
    ANY: "any type",
}

EXACT: dict[str, Attribute] = {"exact": Bool(False)}
"""The attribute `exact` of a product: its operands are whole numbers, whose sums their element type holds. No algorithm
may round."""
CLAMP: dict[str, Attribute] = {"lower": Float(-math.inf), "upper": Float(math.inf)}


def declare(name: str, doc: str, rule: TypeRule, reference: Reference, *, operands: Arity = 1,
            attrs: Mapping[str, Attribute] | None = None, **facts: Any) -> OpDef:
    """Register the op of one row of a table: all rows share the type rule, each has its own `doc`."""

    def own_rule(types: Types, attrs: Attrs) -> TensorType | Sequence[TensorType]:
        return rule(types, attrs)

    own_rule.__doc__ = doc
    op = register_op(name, operands=operands, attrs=attrs, **facts)(own_rule)
    op.reference(reference)
    return op


# ---- type relations -------------------------------------------------------------------------------------


def mismatch(what: str, found: Any, expected: Any) -> TypeRuleError:
    """The error that every type rule raises."""
    return TypeRuleError(f"{what}: found {found}, expected {expected}")


def require(condition: bool, what: str, found: Any, expected: Any) -> None:
    if not condition:
        raise mismatch(what, found, expected)


def require_domain(types: Types, domain: str) -> None:
    """Each operand's element type is in `domain`."""
    for position, type_ in enumerate(types):
        if type_.element.numpy.kind not in domain:
            raise mismatch(f"operand {position}", type_, _DOMAIN_TEXT[domain])


def require_rank(type_: TensorType, least: int, most: int | None = None, *, position: int = 0) -> None:
    fits = type_.rank >= least and (most is None or type_.rank <= most)
    upwards = "" if most == least else " or more" if most is None else f" to {most}"
    require(fits, f"operand {position}", type_, f"rank {least}{upwards}")


def require_shape(type_: TensorType, shape: Shape, *, position: int) -> None:
    require(type_.shape == tuple(shape), f"operand {position}", type_, f"shape {list(shape)}")


def common_element(types: Types, first: int = 0) -> ElementType:
    """The element type T that the operands from `first` on share."""
    element = types[first].element
    for position, type_ in enumerate(types[first:], first):
        if type_.element is not element and type_.element != element:
            raise mismatch(f"operand {position}", type_, f"element type {element}, as operand {first}")
    return element


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """NumPy's broadcasting: right-aligned, a 1 stretches."""
    return _broadcast(*map(tuple, shapes))


@cached(1024)
def _broadcast(*shapes: Shape) -> Shape:
    if all(are_same_shape(shape, shapes[0]) for shape in shapes):
        return shapes[0]
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for dims in zip(*padded, strict=True):
        wide = list(dict.fromkeys(dim for dim in dims if not is_one(dim)))
        if len(wide) > 1:  # symbols among them may be 1, or the same
            wide = list(dict.fromkeys(dim for dim in wide if dim != 1))
        fits = all(dim == wide[0] for dim in wide)
        require(fits, "shapes", " and ".join(str(list(s)) for s in shapes), "shapes that broadcast")
        result.append(wide[0] if wide else 1)
    return tuple(result)


def normal_axis(axis: int, rank: int) -> int:
    """`axis` in [0, rank); negative axes count from the end."""
    require(-rank <= axis < rank, "axis", axis, f"an axis of rank {rank}")
    return axis % rank


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """`axes`, each in [0, rank), sorted; naming one twice is an error."""
    result = tuple(sorted(normal_axis(axis, rank) for axis in axes))
    require(len(set(result)) == len(result), "axes", list(axes), "distinct axes")
    return result


def require_per_axis(name: str, values: Sequence[int], count: int, least: int) -> None:
    require(len(values) == count and all(v >= least for v in values), name, list(values),
            f"{count} integers of at least {least}")


def require_clamp(attrs: Attrs, least: str = "lower", most: str = "upper") -> None:
    lower, upper = attrs[least], attrs[most]
    require(lower <= upper, f"{least} and {most}", f"{lower} and {upper}", f"{least} <= {most}")  # NaN fails too


# ---- type rules that families share ---------------------------------------------------------------------


def same_type(domain: str) -> TypeRule:
    """T[S] -> T[S] with T in `domain`."""

    def rule(types: Types, attrs: Attrs) -> TensorType:
        require_domain(types[:1], domain)
        return types[0]

    return rule


# ---- reference helpers ----------------------------------------------------------------------------------


def in_f32(function: Callable[[Arrays, Attrs], Any]) -> Reference:
    """Decorator of references: f16 operands are computed in f32, and f32 results then cast back.

    Floating-point events (overflow, 0/0) are part of the definition and raise no warning.
    """

    def reference(inputs: Arrays, attrs: Attrs) -> Any:
        narrow = any(array.dtype == np.float16 for array in inputs)
        wide = [array.astype(np.float32) if array.dtype == np.float16 else array for array in inputs]
        with np.errstate(all="ignore"):
            results = function(wide, attrs)
            if not narrow:
                return results
            if isinstance(results, (list, tuple)):
                return [_narrow(result) for result in results]
            return _narrow(results)

    return reference


def _narrow(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16) if array.dtype == np.float32 else array


def contiguous(array: np.ndarray) -> np.ndarray:
    """C-contiguous (`np.ascontiguousarray` would turn rank 0 into rank 1)."""
    return np.asarray(array, order="C")


def clamp_array(array: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """min(max(array, lower), upper); NaN stays NaN. For integers the bounds round inwards and saturate."""
    if (lower, upper) == (-math.inf, math.inf):
        return array
    if array.dtype.kind != "f":
        lower, upper = whole_bounds(array.dtype, lower, upper)
    return np.minimum(np.maximum(array, array.dtype.type(lower)), array.dtype.type(upper))


def whole_bounds(dtype: np.dtype, lower: float, upper: float) -> tuple[int, int]:
    """The bounds of a clamp of this integer type: rounded inwards, and within what the type holds."""
    info = np.iinfo(dtype)
    return (info.min if lower <= info.min else info.max if lower >= info.max else math.ceil(lower),
            info.max if upper >= info.max else info.min if upper <= info.min else math.floor(upper))


def along_axis(vector: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """A rank-1 array as rank `rank`, its elements along `axis`, ready to broadcast."""
    return vector.reshape([-1 if position == axis else 1 for position in range(rank)])
