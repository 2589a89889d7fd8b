"""Facts about an op besides its maths: they stand where it is registered, and no neighbour keeps a list of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, get_args

from ngraph_mxnet.ir.types import Shape

Shapes = Sequence[Shape]
Rates = Mapping[str, float]
Work = Callable[[Shapes, Shapes, Mapping[str, Any]], Rates]
"""From the shapes of operands and results, and the attributes, to the elementary operations by class: `simple`,
`divide`, `transcendental`, `move`, `gather` and `sort`, one for each function applied to each element, as in a plain
implementation."""

Kind = Literal[
    # Elementwise: each element of the result depends on one element of each operand; several operands broadcast.
    "arithmetic",  # numbers of numbers
    "comparison",  # bool of two of any type
    "logical",  # bool of bool
    "choice",  # among the operands
    "copy",  # the element itself, maybe as another type
    # Not elementwise.
    "constant",
    "movement",  # elements to places that the attributes say
    "indexing",  # elements from or to places that an operand says
    "position",  # of elements, by their order along an axis
    "reduction",  # over `axes`, with or without `keep_dims`
    "row",  # each row along `axis` by itself, of the same shape
    "convolution",  # of data and weights, then maybe bias, residual, ...
    "product",  # of two matrices, then maybe a bias
    "pool",  # windows of `kernel` over data [N, C, ...]
    "resampling",  # of data [N, C, H, W], or regions of it, to `sizes`
    "other",
]


@dataclass(eq=False, repr=False, kw_only=True)
class Facts:
    """What neighbours ask. False is a promise of nothing."""

    kind: Kind = "other"
    work: Work | None = None
    commutative: bool = False
    """The two operands may be swapped."""
    selects: bool = False
    """Each element of the result is an element of an operand. All operands stand for the same thing, so that one scale
    serves them and the result, when they are quantised."""
    same_bytes: bool = False
    """The result's bytes are the operand's."""
    rounds: bool = False
    """To whole numbers: these stay as they are."""
    ordinal: bool = False
    """Only the order of numbers counts: if all operands and bounds go through an increasing function, a result of
    numbers goes through it too, and a result of positions stays."""
    keeps_finite: bool = False
    """Operands of moderate size give finite results. Blocks of channels are filled up with such numbers, mostly zeros,
    and what is computed of these must stay finite."""
    by_channel: bool = False
    """Each element of the result depends on one of the first operand; the others are vectors or tables of the
    channels, or numbers for all."""
    multiplies_bytes: bool = False
    """A contraction of u8 and i8, with exact sums."""
    tolerant: bool = False
    """Operands rounded to 8 bits do little more harm than rounding the result so: means, bounds, sums."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"no kind of op {self.kind!r}; there are {', '.join(get_args(Kind))}")

    @property
    def elementwise(self) -> bool:
        return self.kind in ("arithmetic", "comparison", "logical", "choice", "copy")

    @property
    def contraction(self) -> bool:
        return self.kind in ("convolution", "product")

    @property
    def computes(self) -> bool:
        """Whether it does more than move elements, or make them another type."""
        return self.kind not in ("constant", "copy", "movement", "indexing")


def by_result(**rates: float) -> Work:
    """So many operations for each element of the first result."""
    return lambda operands, results, attrs: {name: rate * prod(results[0]) for name, rate in rates.items()}


def by_operand(**rates: float) -> Work:
    """So many operations for each element of operand 0."""
    return lambda operands, results, attrs: {name: rate * prod(operands[0]) for name, rate in rates.items()}


FactsOf = dict[str, Any]
"""Some of an op's `Facts`, which tables put together with `|`."""
SIMPLE: FactsOf = {"work": by_result(simple=1)}
DIVIDE: FactsOf = {"work": by_result(divide=1)}
RATIO: FactsOf = {"work": by_result(divide=1, simple=2)}
TRANSCENDENTAL: FactsOf = {"work": by_result(transcendental=1)}
FINITE: FactsOf = {"keeps_finite": True}
ROUNDS: FactsOf = {"rounds": True}
ORDINAL: FactsOf = {"ordinal": True}
TOLERANT: FactsOf = {"tolerant": True}
