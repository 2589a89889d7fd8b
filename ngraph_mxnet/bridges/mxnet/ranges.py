"""Regions that come with shapes which change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Those of a region's inputs, with symbols for the sizes that have changed; `hint` are the symbols' values now."""

    types: tuple[TensorType, ...]
    hint: dict[str, int]
    changing: ChangingShapes


_changing = Recent(256)
_verdicts = Recent(64)
_lock = ForkSafeLock()


def types_of(subgraph_json: str, shapes: Sequence[Sequence[int]], in_types: Sequence[int],
             attrs: Mapping[str, str]) -> Types | None:
    """Of a region that comes with these shapes, and came with others before; None for the first ones, where the ranks
    differ, where NGRAPH_DYNAMIC is off, and while there is an audit."""
    if config.get("NGRAPH_DYNAMIC") == "off" or active():
        return None
    ranks = tuple(map(len, shapes))
    told = _told(subgraph_json, ranks)
    key = (attrs.get(STRUCTURE) or subgraph_json, tuple(in_types), tuple(sorted(attrs.items())), ranks,
           tuple(told))
    with _lock:
        changing: ChangingShapes = _changing.get(key) or ChangingShapes(told, at_once=True)
        _changing.put(key, changing)
    found = changing.symbolic(tuple(map(tuple, shapes)))
    if found is None:
        return None
    types = (TensorType(mxnet_element(number), shape) for number, shape in zip(in_types, found[0], strict=True))
    return Types(tuple(types), found[1], changing)


def _told(subgraph_json: str, ranks: Sequence[int]) -> Told:
    axes = config.told_axes()
    if not axes:
        return {}
    names = [node.argument for node in parse_symbol(subgraph_json).arguments()]
    return told_by_place(axes, [(name, (None,) * rank) for name, rank in zip(names, ranks, strict=True)])


def add(subgraph_json: str, types: Types, made: Attempt) -> None:
    """Put what became of a region with these types into the log that `report` reads."""
    symbol = parse_symbol(subgraph_json)
    inputs = [f"{node.argument}: {type_}" for node, type_ in zip(symbol.arguments(), types.types, strict=True)
              if type_.is_symbolic]
    name = symbol.nodes[symbol.heads[0].node].name
    _verdicts.put((name, tuple(inputs)), RangeVerdict.of(name, inputs, made))


def verdicts() -> list[RangeVerdict]:
    """On the latest regions whose shapes have changed, the oldest first."""
    return _verdicts.values()


def forget() -> None:
    """What came before, for tests."""
    _changing.clear()
    _verdicts.clear()
