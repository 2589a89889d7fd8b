"""What an op is, and how it is declared; `op_table` finds it by its name.

An op is declared once, in `ops/<family>.py`:

    @register_op("softmax", attrs={"axis": Int()}, operands=1, kind="row")
    def softmax(types, attrs):            # the type rule
        ...
        return types[0]

    @softmax.reference                    # the definition, in NumPy
    def _(inputs, attrs): ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.errors import NGraphError, TypeRuleError
from ngraph_mxnet.ir.attributes import REQUIRED, Attribute, PerAxis
from ngraph_mxnet.ir.facts import Facts, Shapes
from ngraph_mxnet.ir.types import TensorType

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

    @property
    def has_reference(self) -> bool:
        return self._reference is not None

    def check_attrs(self, attrs: Attrs) -> dict[str, Any]:
        """The attributes in schema order, normalised, with defaults filled in.

        Raises:
            TypeRuleError: an attribute is unknown, missing, or of the wrong kind.
        """
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
        """The output types.

        Raises:
            TypeRuleError: operands do not fit.
        """
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
        return [result] if isinstance(result, np.ndarray) else [np.asarray(r) for r in _as_sequence(result)]

    def operations(self, operands: Shapes, results: Shapes, attrs: Attrs) -> Counter[str]:
        """Elementary operations by class, for tensors of these shapes.

        Raises:
            NGraphError: the op does not say.
        """
        if self.work is None:
            raise NGraphError(f"no count of operations for op {self.name!r}: register it with `work`")
        return Counter(self.work(operands, results, attrs))

    def __repr__(self) -> str:
        return f"OpDef({self.name})"


def _as_sequence(result: Any) -> Sequence[Any]:
    return result if isinstance(result, (list, tuple)) else [result]


REGISTRY: dict[str, OpDef] = {}
"""The ops that were registered so far; `op_table.all_ops` loads the rest first."""


def register_op(name: str, *, operands: Arity, attrs: Mapping[str, Attribute] | None = None,
                **facts: Any) -> Callable[[TypeRule], OpDef]:
    """Decorator for a type rule: declares op `name` with its `Facts`. Registering a name twice is an error."""

    def declare(rule: TypeRule) -> OpDef:
        if name in REGISTRY:
            raise ValueError(f"op {name} is registered twice")
        REGISTRY[name] = OpDef(name, operands, attrs or {}, rule, **facts)
        return REGISTRY[name]

    return declare
