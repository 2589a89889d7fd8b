"""Every op record on every backend, compared with the op's reference.

A backend leaves out a case only by giving a reason in `supports`; the reasons are printed.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_records import RECORDS, array_of, tolerance_for

from ngraph_mxnet.ir import Builder, all_ops
from ngraph_mxnet.runtime.backend import _REGISTRY, backends, get_backend
from ngraph_mxnet.runtime.compile import compile


def backend_named(name: str):
    """The backend; a test is skipped only where the installation has no such module at all."""
    module = _REGISTRY[name].split(":")[0]
    if find_spec(module) is None:
        pytest.skip(f"backend {name}: no module {module}")
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


def test_every_op_has_a_record():
    assert set(all_ops()) - {"constant"} == set(RECORDS)


@pytest.mark.parametrize("backend_name", backends())
@pytest.mark.parametrize("op", RECORDS)
def test_op(op: str, backend_name: str):
    record, backend = RECORDS[op], backend_named(backend_name)
    reasons: set[str] = set()

    @given(st.data(), st.integers(0, 2**32 - 1), st.booleans())
    def check(data, seed, weights_are_cacheable):
        types, attrs = record.case(data.draw)
        b = Builder(name=op)
        operands = [
            b.parameter(f"x{i}", t.shape, t.element, cacheable=weights_are_cacheable and i > 0)
            for i, t in enumerate(types)
        ]
        node = b.node(op, operands, attrs)
        graph = b.results(*node.outputs)
        reason = backend.supports(node)
        if reason is not None:
            reasons.add(reason)
            return
        rng = np.random.default_rng(seed)
        arrays = [as_stored(backend_name, array_of(t, rng, record.low, record.high)) for t in types]
        expected = node.op.evaluate(arrays, node.attrs)
        found = compile(graph, backend_name)(*arrays)
        for value, one, other in zip(node.outputs, found, expected, strict=True):
            assert (one.shape, one.dtype) == (value.shape, value.type.element.numpy), str(graph)
            tolerance = tolerance_on(backend_name, tolerance_for(record, value.type.element.numpy))
            assert_close(one, as_stored(backend_name, other), tolerance, str(graph))

    check()
    for reason in sorted(reasons):
        print(f"{backend_name} left out {op}: {reason}")
