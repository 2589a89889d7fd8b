"""Every op record on every backend, compared with the op's reference.

A backend leaves out a case only by giving a reason in `supports`, and only where `refusals.py` lists it.
"""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import Phase, assume, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from op_records import RECORDS, array_of, tolerance_for
from refusals import NEVER_RUN, PLACED, REFUSALS, entries, may_refuse

from ngraph_mxnet.base.errors import PackageError
from ngraph_mxnet.ir import Builder, Node, all_ops
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.program.backend import Backend, backends, get_backend, load
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.program.package import Package

MANY = 60
"""Cases of an op that all backends are asked about."""
MOST_DRAWS = 5000
"""In search of a case that a backend refuses. The rarest that is listed comes once in some hundred."""


def backend_named(name: str) -> Backend:
    """The backend, if it is one that compiles anything."""
    problem = _first_compile(name)
    if problem is not None:
        pytest.fail(f"backend {name} compiles nothing: {problem}", pytrace=False)
    return get_backend(name)


@cache
def _first_compile(name: str) -> str | None:
    """What is wrong with the backend as a whole, such as an extension that is not built: told at once."""
    b = Builder(name="first")
    try:
        compile(b.results(b.relu(b.parameter("x", (2,)))), name)(np.ones(2, np.float32))
    except Exception as error:
        return repr(error)
    return None


IN_F16 = ("HYBRID", "NNP")
"""Whose results may be rounded to the simulated NNP's f16."""


def as_stored(backend: str, array: np.ndarray) -> np.ndarray:
    """`array` as numbers that the backend's device holds: the simulated NNP stores real numbers in f16."""
    if backend not in IN_F16 or array.dtype != np.float32:
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float32)


def tolerance_on(backend: str, tolerance: float) -> float:
    """A result is rounded to f16 where that is how the device stores it."""
    return max(tolerance, 4e-3) if backend in IN_F16 else tolerance


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float, text: str) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), text
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected, err_msg=text)
        return
    finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    atol = tolerance * max(1.0, float(finite.max(initial=0.0)))
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=atol, err_msg=text
    )


def assert_packed(executable: Executable, arrays: list[np.ndarray]) -> None:
    """What is loaded from its package gives the same, bit for bit."""
    try:
        content = executable.package().to_bytes()
    except PackageError as error:
        if "each of which must be at least 1" in str(error):
            return  # kernels over tensors without elements
        if "kernels that other distributions added" in str(error):
            return  # what loads it may lack them; no record of this package's ops has any
        raise
    again = load(Package.from_bytes(content))
    assert (again.inputs, again.outputs) == (executable.inputs, executable.outputs)
    for one, other in zip(again(*arrays), executable(*arrays), strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def node_of(name: str, draw: st.DrawFn, weights: bool = False) -> tuple[Builder, Node]:
    """A node of the record that reads parameters alone."""
    types, attrs = RECORDS[name].case(draw)
    b = Builder(name=RECORDS[name].op)
    roles = [Role.WEIGHT if weights and i else Role.INPUT for i in range(len(types))]
    operands = [b.parameter(f"x{i}", t.shape, t.element, role)
                for i, (t, role) in enumerate(zip(types, roles, strict=True))]
    return b, b.node(RECORDS[name].op, operands, attrs)


def refusal(backend_name: str, node: Node) -> str | None:
    """Why the backend does not run the node. What the manifest does not have of it is a failure."""
    reason, op = get_backend(backend_name).supports(node), node.op.name
    if backend_name in PLACED:
        parts = {name: get_backend(name).supports(node) for name in PLACED[backend_name]}
        expected = None if None in parts.values() else "; ".join(f"{name}: {why}" for name, why in parts.items())
        assert reason == expected, f"{backend_name} is to refuse what {', '.join(parts)} all refuse"
    elif reason is not None and not may_refuse(backend_name, op, reason):
        pytest.fail(f"{backend_name} refuses {node}: {reason}. If rightly so, list it in tests/backend/refusals.py")
    elif reason is not None and backend_name == "CPU":
        assert "has no CPU kernel" in reason, "scripts/fuzzing/values/kinds.py knows by these words that none is missed"
    return reason


def test_every_op_has_a_record():
    assert set(all_ops()) - {"constant"} == {record.op for record in RECORDS.values()}


def test_the_manifest_knows_every_backend():
    assert {*REFUSALS, *PLACED} == set(backends())
    assert {op for _, op, _ in entries()} <= set(RECORDS)


@pytest.mark.parametrize(("backend_name", "op", "reason"), entries())
def test_what_is_listed_is_refused(backend_name: str, op: str, reason: str):
    """Drawn until there is such a case: an entry that nothing needs any more would hide the next refusal."""
    backend = get_backend(backend_name)

    @st.composite
    def reasons(draw: st.DrawFn) -> str:
        return backend.supports(node_of(op, draw)[1]) or ""

    try:
        find(reasons(), lambda found: found.startswith(reason), random=Random(0),
             settings=settings(max_examples=MOST_DRAWS, phases=[Phase.generate]))
    except NoSuchExample:
        pytest.fail(f"{backend_name} refuses {op} with {reason!r} no more: take it off the list", pytrace=False)


@pytest.mark.parametrize("name", RECORDS)
def test_nothing_else_is_refused(name: str):
    """Asking costs little, so of many more cases than run."""

    @settings(max_examples=MANY)
    @given(st.data())
    def check(data: st.DataObject):
        _, node = node_of(name, data.draw)
        for backend in backends():
            refusal(backend, node)

    check()


@pytest.mark.parametrize(("name", "backend_name"), [
    (name, backend) for name, record in RECORDS.items() for backend in backends()
    if record.op not in NEVER_RUN.get(backend, "").split()])
def test_op(name: str, backend_name: str):
    record = RECORDS[name]
    backend_named(backend_name)

    @given(st.data(), st.integers(0, 2**32 - 1), st.booleans())
    def check(data: st.DataObject, seed: int, with_weights: bool):
        b, node = node_of(name, data.draw, with_weights)
        # Another case is drawn then, so that as many run, whatever is refused; none at all is an error.
        assume(refusal(backend_name, node) is None)
        graph = b.results(*node.outputs)
        rng = np.random.default_rng(seed)
        arrays = [as_stored(backend_name, array_of(v.type, rng, record.low, record.high)) for v in node.inputs]
        expected = node.op.evaluate(arrays, node.attrs)
        executable = compile(graph, backend_name)
        found = executable(*arrays)
        for value, one, other in zip(node.outputs, found, expected, strict=True):
            assert (one.shape, one.dtype) == (value.shape, value.type.element.numpy), str(graph)
            tolerance = tolerance_on(backend_name, tolerance_for(record, value.type.element.numpy))
            assert_close(one, as_stored(backend_name, other), tolerance, str(graph))
        assert_packed(executable, arrays)

    check()
