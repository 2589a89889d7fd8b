"""The cache of compiled programs: what its key tells apart, what an entry holds, and when there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.ir.ranges import Guards, assuming, because
from ngraph_mxnet.ir.sizes import symbol
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.cache import open_store
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.program_cache import Made, get_or_make, program_key

X = np.arange(6, dtype=np.float32).reshape(2, 3)
WEIGHT = np.arange(3 * 700, dtype=np.float32).reshape(3, 700)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries() -> dict[str, int]:
    """How many there are of each kind, beside the identity of the package."""
    store = open_store()
    assert store is not None
    kinds = [entry.kind for entry in store.entries() if entry.kind != "identity"]
    return {kind: kinds.count(kind) for kind in sorted(kinds)}


def product(scale: float = 1.0) -> Graph:
    """The weight, and what a pass makes of it."""
    b = Builder()
    x = b.parameter("x", (2, 3))
    whole = b.matmul(x, b.constant(WEIGHT))
    return b.results(whole, b.matmul(x, b.constant(WEIGHT * np.float32(scale))))


class Making:
    """Compiles anew at each call, and counts the calls."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.count, self._make = 0, make

    def __call__(self) -> Any:
        self.count += 1
        return self._make()


def test_programs_and_facts_come_back(folder: Path) -> None:
    make = Making(lambda: Made([compile_graph(product(), "CPU"), compile_graph(product(2), "INTERPRETER")],
                               {"outputs": (1, 2)}))
    for _ in range(3):
        found = get_or_make(lambda: "key", make)
        assert found.facts == {"outputs": [1, 2]}, "as JSON has them, also when they were just made"
        for program, scale in zip(found.programs, (1, 2), strict=True):
            np.testing.assert_allclose(program(X)[1], X @ WEIGHT * scale, rtol=1e-5)
    assert make.count == 1 and entries() == {"program": 1}
    assert get_or_make(lambda: "other", make) is not None and make.count == 2


def test_arrays_of_the_caller_are_named_and_others_kept_once(folder: Path) -> None:
    for scale, constants in ((1.0, None), (2.0, 1), (3.0, 2)):
        make = Making(lambda scale=scale: Made([compile_graph(product(scale), "INTERPRETER")], {}, {"w": WEIGHT}))
        for _ in range(2):
            found = get_or_make(lambda scale=scale: f"scaled {scale}", make, weights=lambda: {"w": WEIGHT})
            np.testing.assert_allclose(found.programs[0](X)[1], X @ WEIGHT * np.float32(scale), rtol=1e-5)
        assert make.count == 1 and entries().get("constant") == constants
    store = open_store()
    assert store is not None
    assert max(entry.bytes for entry in store.entries() if entry.kind == "program") < WEIGHT.nbytes


def test_arrays_that_went_are_made_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    make = Making(lambda: Made([compile_graph(product(2), "INTERPRETER")], {}, {"w": WEIGHT}))
    get_or_make(lambda: "key", make, weights=lambda: {"w": WEIGHT})
    for path in (folder / "constant").iterdir():
        path.unlink()
    for _ in range(2):
        get_or_make(lambda: "key", make, weights=lambda: {"w": WEIGHT})
    assert make.count == 2 and entries() == {"constant": 1, "program": 1}
    assert "does not load" not in caplog.text


def test_templates_of_one_key_differ_in_guards(folder: Path) -> None:
    """Odd and even sizes take other programs."""
    def template(size: int) -> Made:
        b = Builder()
        x = b.parameter("x", (symbol("N", 1), 3))
        with because("the test"):
            y = b.exp(x) if x.shape[0] % 2 == 0 else b.negative(x)
        return Made([get_backend("CPU").template(b.results(y), {})])

    for size, count in ((2, 1), (4, 1), (3, 2), (5, 2), (8, 2)):
        with assuming(Guards({"N": size})):
            found = get_or_make(lambda: "key", lambda size=size: template(size), hint={"N": size})
        x = np.ones((size, 3), np.float32)
        expected = np.negative(x) if size % 2 else np.exp(x)
        np.testing.assert_allclose(found.programs[0].bind([x.shape])(x)[0], expected, rtol=1e-6)
        assert entries() == {"template": count}


def test_nothing_is_kept_of_none_and_without_a_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Making(lambda: None)
    assert get_or_make(lambda: "key", make) is None and get_or_make(lambda: None, make) is None
    assert make.count == 2 and entries() == {}
    monkeypatch.setenv("NGRAPH_CACHE_DIR", "off")
    made = Making(lambda: Made([], {"n": 1}))

    def key() -> str:
        raise AssertionError("a key takes time, and is not needed")

    assert get_or_make(key, made).facts == {"n": 1} and made.count == 1


def test_an_entry_that_does_not_load_is_made_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    make = Making(lambda: Made([compile_graph(product(), "INTERPRETER")]))
    get_or_make(lambda: "key", make)
    (path,) = (folder / "program").iterdir()
    path.write_bytes(path.read_bytes()[:-1])  # the store refuses it
    get_or_make(lambda: "key", make)
    assert make.count == 2

    def no_weights() -> dict[str, np.ndarray]:
        raise TypeError("no weights")

    get_or_make(lambda: "key", make, weights=no_weights)
    assert make.count == 3 and "does not load, it is compiled anew: TypeError('no weights')" in caplog.text


def test_what_a_key_tells_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tmp_path / "recipe"
    recipe.write_text("one")
    keys = {program_key(what, backend, options) for what in ("graph", ("graph", 1)) for backend in ("CPU", "NNP")
            for options in ({}, {"threads": 1}, {"threads": "1"}, {"recipe": str(recipe)})}
    assert len(keys) == 16
    before = program_key("graph", "CPU", {"recipe": str(recipe)})
    recipe.write_text("two")
    assert program_key("graph", "CPU", {"recipe": str(recipe)}) != before
    before = program_key("graph", "CPU", {})
    monkeypatch.setenv("NGRAPH_CPU_WINOGRAD", "0")
    assert program_key("graph", "CPU", {}) != before
