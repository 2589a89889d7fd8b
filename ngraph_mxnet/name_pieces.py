"""Names of nodes, cut at their separators: what several begin with."""

from __future__ import annotations

import re
from collections.abc import Sequence


def pieces(name: str) -> list[str]:
    """Parts with the separator behind each, `/`, `.` or `_`; of paths, only `/` and `.` separate."""
    return re.findall(r"[^/.]*[/.]|[^/.]+$" if "/" in name else r"[^_.]*[_.]|[^_.]+$", name)


def common_prefix(names: Sequence[str]) -> str:
    """Return the prefix that all names share, up to a separator; it is never a whole name. The prefix of fewer than two
    names is empty."""
    if len(names) < 2:
        return ""
    found = []
    for same in zip(*(pieces(name)[:-1] for name in names), strict=False):
        if len(set(same)) > 1:
            break
        found.append(same[0])
    return "".join(found)
