"""Ops: each one's definition, and facts about it besides its maths; and the table of all.

The facts stand where an op is registered, and no neighbour keeps a list of names.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, get_args

import numpy as np

from ngraph_mxnet.base.errors import NGraphError, TypeRuleError
from ngraph_mxnet.ir.types import REQUIRED, Attribute, PerAxis, Shape, TensorType

Shapes = Sequence[Shape]
Rates = Mapping[str, float]
Work = Callable[[Shapes, Shapes, Mapping[str, Any]], Rates]
"""From the shapes of operands and results, and the attributes, to the elementary operations by class: `simple`,
`divide`, `transcendental`, `move`, `gather` and `sort`, one for each function applied to each element, as in a plain
implementation."""
Function = Callable[..., Any]
Scalar = Callable[[Any], Function] | str
Counts = Callable[[Shapes, Shapes, Mapping[str, Any]], tuple[int, int]]
"""From the same to multiply-adds and other operations, as `node_cost` counts them."""
Rows = Callable[[Shapes, Shapes, Mapping[str, Any]], tuple[int, int]]
"""From the same to a number of rows, and the elements of one row, which lie side by side."""

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
    "convolution",  # of data and weights, then the epilogue
    "product",  # of two matrices, then the epilogue
    "pool",  # windows of `kernel` over data [N, C, ...]
    "resampling",  # of data [N, C, H, W], or regions of it, to `sizes`
    "other",
]


@dataclass(eq=False, repr=False, kw_only=True)
class Facts:
    """The facts about an op that its neighbours (passes and targets) ask for. False is a promise of nothing."""

    kind: Kind = "other"
    work: Work | None = None
    counts: Counts | None = None
    """None: as usual for its kind. `work` can't tell: it has every function of a plain implementation (5 an element of
    a softmax, zeros of dilated data), and costs and thresholds are fitted to one operation an element."""
    rows: Rows | None = None
    """The rows of operand 0 that the op reads. None: it reads all of operand 0, as it reads all of the others."""
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
    epilogue: Sequence[str] = ()
    """Of a contraction: the names of the operands that may follow data and weights, in order."""
    tolerant: bool = False
    """Operands rounded to 8 bits do little more harm than rounding the result so: means, bounds, sums."""
    # Of the rows of `ops/elementwise.py` only.
    domain: str = ""
    """The kinds, in NumPy's letters, of the element types that the op takes."""
    scalar: Scalar | None = None
    """How the op computes an element. A formula takes a module that has other ops by their names, `select`, and the
    numbers `zero`, `half`, `one` and `number(x)`. It returns a function of elements, then attributes. A text names a
    function that each element type brings: mostly C's."""
    adjoint: Function | None = None
    """The operands' gradients, in the notation of autodiff's `Expression`, from the result's gradient, the result, the
    operands and the attributes."""
    float32: Literal["vector", "call", "wide"] = "vector"
    """How float32 is computed: as vectors, by a call of libm for each element, or as float64."""
    signed: bool = False
    """Integers with a sign are computed in another way than those without."""
    step: int | None = None
    """The op's number in compiled chains of elementwise ops; None: it is in none."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"no kind of op {self.kind!r}; there are {', '.join(get_args(Kind))}")
        if self.counts is None:
            self.counts = _COUNTS.get(self.kind, _one_each if self.computes else _nothing)

    @property
    def elementwise(self) -> bool:
        return self.kind in ("arithmetic", "comparison", "logical", "choice", "copy")

    @property
    def contraction(self) -> bool:
        return self.kind in ("convolution", "product")

    @property
    def computes(self) -> bool:
        """True if the op does more than move elements, or make them another type."""
        return self.kind not in ("constant", "copy", "movement", "indexing")


def _one_each(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> tuple[int, int]:
    return 0, max([sum(map(prod, results)), *map(prod, operands)])


def _nothing(operands: Shapes, results: Shapes, attrs: Mapping[str, Any]) -> tuple[int, int]:
    return 0, 0


_COUNTS: Mapping[str, Counts] = {
    "convolution": lambda operands, results, attrs: (
        sum(map(prod, results)) * prod(operands[1][1:]) // prod(attrs["data_dilations"]), 0),
    "product": lambda operands, results, attrs: (
        sum(map(prod, results)) * operands[0][-2 if attrs["transpose_a"] else -1], 0),
    "pool": lambda operands, results, attrs: (0, sum(map(prod, results)) * prod(attrs["kernel"])),
}


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


Attrs = Mapping[str, Any]
TypeRule = Callable[[Sequence[TensorType], Attrs], "TensorType | Sequence[TensorType]"]
Reference = Callable[[Sequence[np.ndarray], Attrs], "np.ndarray | Sequence[np.ndarray]"]
Arity = int | tuple[int, int | None]


class OpDef(Facts):
    """One op: name, number of operands, attribute schema, type rule, NumPy reference, and its facts.

    `operands` is a count, or (least, most) with `most=None` for any number.
    """

    def __init__(self, name: str, operands: Arity, attrs: Mapping[str, Attribute], rule: TypeRule,
                 **facts: Any) -> None:
        super().__init__(**facts)
        self.name = name
        self.least, self.most = operands if isinstance(operands, tuple) else (operands, operands)
        self.schema = dict(attrs)
        self._defaults = {key: kind.default if kind.default is REQUIRED else kind.check(name, key, kind.default)
                          for key, kind in attrs.items()}
        self._required = [key for key, value in self._defaults.items() if value is REQUIRED]
        self._per_axis = [(key, kind) for key, kind in attrs.items() if isinstance(kind, PerAxis)]
        self.rule = rule
        self.doc = (rule.__doc__ or "").strip()
        self._reference: Reference | None = None

    def reference(self, function: Reference) -> Reference:
        """Decorator: `function(inputs, attrs)` defines what the op computes."""
        if self._reference is not None:
            raise ValueError(f"op {self.name} already has a reference")
        self._reference = function
        return function

    def operand_name(self, position: int) -> str:
        """The name of an operand of the epilogue; empty for other operands."""
        return self.epilogue[position - 2] if 1 < position < 2 + len(self.epilogue) else ""

    def is_data(self, position: int) -> bool:
        """True if an operand of a contraction is data or the residual: no weights, and no vector."""
        return not position or self.operand_name(position) == "residual"

    @property
    def has_reference(self) -> bool:
        return self._reference is not None

    def check_attrs(self, attrs: Attrs) -> dict[str, Any]:
        """The attributes in schema order, normalised, with defaults filled in. Raises TypeRuleError: an attribute is
        unknown, missing, or of the wrong kind."""
        if not attrs.keys() <= self.schema.keys():
            unknown = sorted(attrs.keys() - self.schema.keys())
            raise TypeRuleError(f"{self.name} has no attribute {unknown}; it has {sorted(self.schema)}")
        checked = dict(self._defaults)
        for key, value in attrs.items():
            checked[key] = self.schema[key].check(self.name, key, value)
        for key in self._required:
            if key not in attrs:
                raise TypeRuleError(f"{self.name}.{key} is missing: it has no default")
        return checked

    def complete(self, types: Sequence[TensorType], attrs: Attrs) -> dict[str, Any]:
        """`attrs` with the defaults that depend on the rank of operand 0 filled in (see `PerAxis`)."""
        if not self._per_axis:
            return dict(attrs)
        rank = types[0].rank if types else 0
        fills = {key: (kind.fill,) * max(rank - kind.skip, 0) for key, kind in self._per_axis if attrs[key] == ()}
        return {**attrs, **fills}

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> list[TensorType]:
        """The output types. Raises TypeRuleError: operands do not fit."""
        if len(types) < self.least or (self.most is not None and len(types) > self.most):
            wanted = self.least if self.least == self.most else f"{self.least} to {self.most or 'any number'}"
            raise TypeRuleError(f"{self.name} takes {wanted} operands, found {len(types)}")
        result = self.rule(types, attrs)
        return [result] if isinstance(result, TensorType) else list(result)

    def evaluate(self, inputs: Sequence[np.ndarray], attrs: Attrs) -> list[np.ndarray]:
        """Run the reference; the results own contiguous memory or are the inputs."""
        if self._reference is None:
            raise NotImplementedError(f"op {self.name} has no reference: decorate one with @{self.name}.reference")
        result = self._reference(inputs, attrs)
        results = result if isinstance(result, (list, tuple)) else [result]
        return [each if isinstance(each, np.ndarray) else np.asarray(each) for each in results]

    def elements_read(self, operands: Shapes, results: Shapes, attrs: Attrs) -> list[int]:
        """The elements of each operand that the op reads, each counted once, for tensors of these shapes."""
        sizes = list(map(prod, operands))
        if self.rows is not None:
            sizes[0] = min(sizes[0], prod(self.rows(operands, results, attrs)))
        return sizes

    def operations(self, operands: Shapes, results: Shapes, attrs: Attrs) -> Counter[str]:
        """Elementary operations by class, for tensors of these shapes. Raises NGraphError: the op does not say."""
        if self.work is None:
            raise NGraphError(f"no count of operations for op {self.name!r}: register it with `work`")
        return Counter(self.work(operands, results, attrs))

    def __repr__(self) -> str:
        return f"OpDef({self.name})"


REGISTRY: dict[str, OpDef] = {}
"""The ops that were registered so far; `all_ops` loads the rest first."""
FORMER: dict[str, str] = {}
"""Names that ops have in texts of earlier versions, with the names of today."""


def register_op(name: str, *, operands: Arity, attrs: Mapping[str, Attribute] | None = None,
                **facts: Any) -> Callable[[TypeRule], OpDef]:
    """Decorator for a type rule: declares op `name` with its `Facts`. Registering a name twice is an error."""

    def declare(rule: TypeRule) -> OpDef:
        if name in REGISTRY:
            raise ValueError(f"op {name} is registered twice")
        REGISTRY[name] = OpDef(name, operands, attrs or {}, rule, **facts)
        return REGISTRY[name]

    return declare


_OPS = "ngraph_mxnet.ops"
"""The modules that register the ops import this one: they are loaded when somebody first asks for an op."""


def all_ops() -> dict[str, OpDef]:
    importlib.import_module(_OPS)
    return dict(sorted(REGISTRY.items()))


def ops_of(*kinds: Kind) -> list[str]:
    return [name for name, op in all_ops().items() if op.kind in kinds]


def present_name(name: str) -> str:
    """The name of today of an op that had another one; every other name as it is."""
    importlib.import_module(_OPS)
    return FORMER.get(name, name)


def get_op(name: str) -> OpDef:
    """The op called `name`, today or formerly. Raises KeyError: there is none."""
    op = REGISTRY.get(name) or all_ops().get(present_name(name))
    if op is None:
        raise KeyError(f"no op {name!r}; to add one, declare it in ops/<family>.py with @register_op")
    return op
