"""Training steps on arrays whose sizes change: both halves are compiled for a range of sizes, as regions are."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ngraph_mxnet.bridges.mxnet import ranges
from ngraph_mxnet.bridges.mxnet.kept import kept_or_made_template
from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.ir.range_text import described
from ngraph_mxnet.package.pack import pack, unpack
from ngraph_mxnet.package.template_package import TemplatePackage
from ngraph_mxnet.recent import Recent
from ngraph_mxnet.runtime.backend import load_template
from ngraph_mxnet.runtime.changing import ChangingShapes
from ngraph_mxnet.runtime.executable import Executable, Port
from ngraph_mxnet.runtime.ranges import Shapes, Template, for_range

Facts = dict[str, Any]
Types = Mapping[str, TensorType]


def read_of_forward(facts: Facts, results: Sequence[Port]) -> dict[str, TensorType]:
    """What the backward half reads of the forward one's results, by name, and its head gradients."""
    types = [port.type for port in results]
    saved = types[len(types) - len(facts["saved"]):]
    return {**dict(zip(facts["saved"], saved, strict=True)),
            **{name: types[number] for name, number in facts["repeated"].items()},
            **{name: types[number] for number, name in facts["heads"]}}


class StepTemplate(Template):
    """Both halves of a step, and what `compile_step` says of them. `inputs` are the symbol's variables."""

    def __init__(self, facts: Facts, halves: Sequence[Template], inputs: Sequence[Port]) -> None:
        self.facts, self.inputs = facts, inputs
        self._forward, self._backward = halves
        self.guards = list(dict.fromkeys(guard for half in halves for guard in half.guards))

    def bind(self, shapes: Shapes) -> tuple[Facts, list[Executable]] | None:
        types = {port.name: port.type.with_shape(tuple(shape))
                 for port, shape in zip(self.inputs, shapes, strict=True)}
        forward = _bound(self._forward, types)
        if forward is None:
            return None
        backward = _bound(self._backward, types | read_of_forward(self.facts, forward.outputs))
        return None if backward is None else (self.facts, [forward, backward])

    def package(self) -> StepPackage:
        return StepPackage(self.facts, [half.package() for half in (self._forward, self._backward)])


def _bound(half: Template, types: Types) -> Executable | None:
    found: Executable | None = half.bind([types.get(port.name, port.type).shape for port in half.inputs])
    return found


@dataclass(frozen=True)
class StepPackage:
    """A `StepTemplate` as plain data, but for its inputs."""

    facts: Facts
    halves: Sequence[TemplatePackage]

    def holds(self, binding: Mapping[str, int]) -> bool:
        return all(half.holds(binding) for half in self.halves)

    def to_bytes(self) -> bytes:
        halves = [np.frombuffer(half.to_bytes(), np.uint8) for half in self.halves]
        return b"".join(pack({"facts": self.facts, "halves": halves}))

    @staticmethod
    def from_bytes(content: bytes) -> StepPackage:
        found = unpack(content)
        try:
            return StepPackage(found["facts"], [TemplatePackage.from_bytes(half.tobytes()) for half in found["halves"]])
        except (AttributeError, LookupError, TypeError) as error:
            raise PackageError(f"this is no training step for a range of sizes: {error!r}") from error


MOST_KEPT = 32
"""Of so many symbols that have trained the templates are kept; those used longest ago go first."""
_templates = Recent(MOST_KEPT)
"""Lists of them by what found out which sizes change."""
_lock = ForkSafeLock()


def step_for_range(key: Hashable, types: Types, make: Callable[[Types], tuple[Facts, Sequence[Template]]], *,
                   small: bool) -> tuple[Facts, list[Executable]] | None:
    """The facts and halves of a step on arrays of these types, of what is compiled for a range; None for the first
    ones, and where that can't be.

    Args:
        key: what is compiled depends on, beside the types.
        types: of the symbol's variables, by name.
        make: compiles both halves for types with symbols among their sizes, under guards.
        small: making takes no time.
    """
    elements, shapes = [[type_.element.name for type_ in types.values()], [type_.shape for type_ in types.values()]]
    changing = ranges.changing_of((key, tuple(elements)), tuple(map(len, shapes)), list(types))
    if changing is None:
        return None
    found = _bound_to(changing, shapes)
    if found is not None:
        return found
    with _lock:
        found = _bound_to(changing, shapes)  # another thread may have made one
        symbolic = changing.symbolic(tuple(shapes)) if found is None else None
        if symbolic is None:
            return found
        sizes, hint = symbolic
        named = {name: type_.with_shape(size) for (name, type_), size in zip(types.items(), sizes, strict=True)}
        inputs = [Port(*each) for each in named.items()]

        def made() -> StepTemplate:
            facts, halves = make(named)
            return StepTemplate(json.loads(json.dumps(facts)), halves, inputs)

        def load(package: StepPackage) -> StepTemplate:
            return StepTemplate(package.facts, list(map(load_template, package.halves)), inputs)

        whole = repr((key, elements, described({name: type_.shape for name, type_ in named.items()})))
        kept = partial(kept_or_made_template, whole, hint, made, small=small, decode=StepPackage.from_bytes, load=load)
        attempt, found = for_range(hint, kept, lambda _: shapes, "a training step", changing)
        ranges.add_named("a training step", named, attempt)
        if isinstance(attempt.template, StepTemplate) and found is not None:
            _templates.put(changing, [*(_templates.get(changing) or ()), attempt.template])
        return found


def _bound_to(changing: ChangingShapes, shapes: Shapes) -> tuple[Facts, list[Executable]] | None:
    bound = (template.bind(shapes) for template in _templates.get(changing) or ())
    return next((found for found in bound if found is not None), None)
