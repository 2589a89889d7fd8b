"""In what regions compute: what is told of them when they are compiled, or loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngraph_mxnet.recent import Recent
from ngraph_mxnet.runtime.executable import Executable

_told = Recent(1024)


def remember(subgraph_json: str, attrs: Mapping[str, str], precision: str) -> None:
    """`precision`: as text for people."""
    _told.put(_key(subgraph_json, attrs), precision)


def told_of(executable: Executable) -> str:
    """The precision of convolutions and matrix products; with a recipe, how many are in 8 bits."""
    return f"{executable.precision}, {executable.quantised}" if executable.quantised else executable.precision


def precision_of(subgraph_json: str, attrs: Mapping[str, str]) -> str:
    """What was remembered of the region; empty if nothing was."""
    found: str = _told.get(_key(subgraph_json, attrs)) or ""
    return found


def _key(subgraph_json: str, attrs: Mapping[str, str]) -> Any:
    return subgraph_json, tuple(sorted(attrs.items()))
