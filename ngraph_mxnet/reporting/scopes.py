"""Names of nodes as a tree of blocks, so that a picture can show a block as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ngraph_mxnet.name_pieces import pieces

_DENSE = 0.4
"""The least share that a block has of the nodes from its first to its last: others are no part of the model, but
counters of an operator's kind, such as Conv in Conv_1, Conv_2."""


@dataclass(frozen=True)
class Scope:
    """A block. `parent` is the place of the block around it, -1 where there is none."""

    label: str
    parent: int


def scopes(names: Sequence[str]) -> tuple[list[Scope], list[int]]:
    """The blocks that names of nodes, in order, tell of: what several begin with, up to `/`, `.` or `_`.

    Returns:
        The blocks, each behind the one around it; and for each name the innermost that it is in, -1 for none.
    """
    found: list[Scope] = []
    innermost = [-1] * len(names)
    cut = [pieces(name) for name in names]

    def divide(members: list[int], depth: int, taken: int, parent: int) -> None:
        groups: dict[str, list[int]] = {}
        for member in members:
            innermost[member] = parent
            if depth < len(cut[member]) - 1:
                groups.setdefault(cut[member][depth], []).append(member)
        for group in groups.values():
            whole = len(group) == len(members)
            if len(group) < 2 or whole or len(group) / (group[-1] - group[0] + 1) < _DENSE:
                divide(group, depth + 1, taken, parent)
                continue
            label = "".join(cut[group[0]][taken:depth + 1]).strip("/._")
            found.append(Scope(label, parent))
            divide(group, depth + 1, depth + 1, len(found) - 1)

    divide(list(range(len(names))), 0, 0, -1)
    return found, innermost
