"""Regions and training steps that come with shapes which change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from ngraph_mxnet import config
from ngraph_mxnet.auditing.audit import active
from ngraph_mxnet.bridges.mxnet.options import STRUCTURE
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import mxnet_element, parse_symbol
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.recent import Recent
from ngraph_mxnet.runtime.changing import ChangingShapes, Told, told_by_place
from ngraph_mxnet.runtime.range_report import RangeVerdict
from ngraph_mxnet.runtime.ranges import Attempt


@dataclass(frozen=True)
class Types:
    """The types of a region's inputs, with symbols for the sizes that have changed. `hint`: the symbols' values now."""

    types: tuple[TensorType, ...]
    hint: dict[str, int]
    changing: ChangingShapes


_changing = Recent(256)
_verdicts = Recent(64)
_lock = ForkSafeLock()


def types_of(subgraph_json: str, shapes: Sequence[Sequence[int]], in_types: Sequence[int],
             attrs: Mapping[str, str]) -> Types | None:
    """Return the types of a region that comes with these shapes, and came with others before. Return None for the first
    shapes, and where `changing_of` returns None."""
    ranks = tuple(map(len, shapes))
    names = [node.argument for node in parse_symbol(subgraph_json).arguments()] if config.told_axes() else []
    changing = changing_of((attrs.get(STRUCTURE) or subgraph_json, tuple(in_types), tuple(sorted(attrs.items()))),
                           ranks, names)
    found = changing.symbolic(tuple(map(tuple, shapes))) if changing is not None else None
    if changing is None or found is None:
        return None
    types = (TensorType(mxnet_element(number), shape) for number, shape in zip(in_types, found[0], strict=True))
    return Types(tuple(types), found[1], changing)


def changing_of(key: Hashable, ranks: tuple[int, ...], names: Sequence[str]) -> ChangingShapes | None:
    """Which sizes change of what `key` tells apart, with arrays of these ranks; None where NGRAPH_DYNAMIC is off, and
    while there is an audit.

    Args:
        names: of the arrays; none where no sizes are told.
    """
    if config.get("NGRAPH_DYNAMIC") == "off" or active():
        return None
    axes = config.told_axes()
    told: Told = told_by_place(axes, [(name, (None,) * rank) for name, rank in zip(names, ranks, strict=True)]) \
        if axes else {}
    whole = (key, ranks, tuple(told))
    with _lock:
        changing: ChangingShapes = _changing.get(whole) or ChangingShapes(told, at_once=True)
        _changing.put(whole, changing)
    return changing


def add(subgraph_json: str, types: Types, made: Attempt) -> None:
    """Put what became of a region with these types into the log that `report` reads."""
    symbol = parse_symbol(subgraph_json)
    names = [node.argument for node in symbol.arguments()]
    add_named(symbol.nodes[symbol.heads[0].node].name, dict(zip(names, types.types, strict=True)), made)


def add_named(name: str, types: Mapping[str, TensorType], made: Attempt) -> None:
    """Put what became of something called `name` into the log that `report` reads. `types`: those of its arrays, by
    their names."""
    inputs = [f"{argument}: {type_}" for argument, type_ in types.items() if type_.is_symbolic]
    _verdicts.put((name, tuple(inputs)), RangeVerdict.of(name, inputs, made))


def verdicts() -> list[RangeVerdict]:
    """On the latest regions whose shapes have changed, the oldest first."""
    return _verdicts.values()


def forget() -> None:
    """Forget all shapes and verdicts so far, for tests."""
    _changing.clear()
    _verdicts.clear()
