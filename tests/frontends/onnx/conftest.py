"""What ONNX's tests count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ngraph_mxnet.program.backend import Backend, get_backend


@pytest.fixture
def imports(heard: Callable[[str], list[str]]) -> list[str]:
    """Gets an entry for each import of a model."""
    return heard("imported model ")


@pytest.fixture
def compiled(own_backend: Callable[..., None]) -> list[str]:
    """Gets an entry for each graph that is compiled by OWN_CPU or OWN_INTERPRETER, which are like CPU and INTERPRETER,
    for a range of sizes too: the backend, and the graph."""
    seen: list[str] = []

    def add(base: type[Backend], name: str) -> None:
        def compile(self: Any, graph: Any, options: Any) -> Any:
            seen.append(f"{name} {graph}")
            return base.compile(self, graph, options)

        def template(self: Any, graph: Any, options: Any) -> Any:
            seen.append(f"{name} for a range: {graph}")
            return base.template(self, graph, options)

        own_backend(base, f"OWN_{name}", compile=compile, template=template)

    for name in ("CPU", "INTERPRETER"):
        add(type(get_backend(name)), name)
    return seen
