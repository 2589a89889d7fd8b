"""Operators that stay with MXNet on purpose, each with the reason that `explain` prints."""

from __future__ import annotations

LEFT: dict[str, str] = {
    "Correlation": "a search over displacements, which only optical-flow nets use",
    "Custom": "it calls the user's own Python code",
}
