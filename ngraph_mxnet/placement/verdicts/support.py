"""Verdicts: whether a backend takes a node, and the reason when not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ngraph_mxnet.ir.graph import Node
from ngraph_mxnet.runtime.backend import Backend


@dataclass(frozen=True)
class Verdict:
    """On one node of the framework's graph. `reason` is None when it is supported."""

    name: str
    op: str
    reason: str | None = None

    @property
    def supported(self) -> bool:
        return self.reason is None


def backend_reason(backend: Backend, nodes: Iterable[Node]) -> str | None:
    """Why `backend` does not run one of the nodes; None when it runs them all."""
    for node in nodes:
        reason = backend.supports(node)
        if reason is not None:
            return f"backend {backend.name}: {reason}"
    return None
