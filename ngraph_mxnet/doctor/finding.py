"""What a check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Finding:
    """`facts` by name, plain data, are for whoever reads a bug report. `problems` are wrong and say what to do; `notes`
    are worth knowing, and nothing is wrong for them."""

    check: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        return "wrong" if self.problems else "note" if self.notes else "fine"

    def to_dict(self) -> dict[str, Any]:
        return {"check": self.check, "status": self.status, "facts": dict(self.facts),
                "problems": list(self.problems), "notes": list(self.notes)}
