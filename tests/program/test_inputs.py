"""What an executable takes for an array, and how it refuses the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ngraph_mxnet
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.program.executable import InputError, as_array

SHAPE = (2, 300, 300)
"""At 2 ms an element, which is what MXNet's NDArray took to be read one by one, six minutes."""


def of_a_graph() -> Any:
    b = Builder()
    return ngraph_mxnet.compile(b.results(b.abs(b.parameter("x", SHAPE, "f32"))), "CPU")


def of_onnx() -> Any:
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "h", "w"]) for name in "xy")
    proto = helper.make_model(helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", [x], [y]),
                              opset_imports=[helper.make_opsetid("", 21)])
    return ngraph_mxnet.compile(proto, "CPU")


either = pytest.mark.parametrize("made", [of_a_graph, of_onnx])


class Untouchable:
    """A sequence whose elements must not be read."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("an element is read")


class Copied:
    """A tensor that has `__array__` only, as one of another framework."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._array


class Elsewhere(Copied):
    """A tensor of a GPU: neither way leads to it."""

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError("on cuda:0")

    def __dlpack_device__(self) -> Any:
        return 2, 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise RuntimeError("can't convert a tensor of cuda:0")


@pytest.mark.timeout(60)
@either
@pytest.mark.parametrize("make", ["nd", "np", "transposed", "sparse"])
def test_ndarrays_of_mxnet(made: Callable[[], Any], make: str) -> None:
    import mxnet as mx

    array = np.random.default_rng(1).standard_normal(SHAPE, dtype=np.float32)
    given = {"nd": mx.nd.array, "np": mx.np.array,
             "transposed": lambda x: mx.nd.array(x.transpose(0, 2, 1)).swapaxes(1, 2),
             "sparse": lambda x: mx.nd.array(x).tostype("row_sparse")}[make](array)
    exe = made()
    for results in (exe(given), exe({"x": given}), exe.run_async(given).result()):
        np.testing.assert_array_equal(results[0], np.abs(array))
    with pytest.raises(InputError, match="found dtype float64, expected float32"):
        exe(given.astype("float64"))


def test_ndarrays_as_weights() -> None:
    import mxnet as mx

    b = Builder()
    x, w = b.parameter("x", (3,), "f32"), b.weight("w", (3,), "f32")
    exe = ngraph_mxnet.compile(b.results(b.add(x, w)), "CPU", weights={"w": mx.nd.array([1, 2, 3])})
    assert exe(mx.nd.ones(3))[0].tolist() == [2, 3, 4]


@either
def test_what_has_an_array(made: Callable[[], Any]) -> None:
    array = np.full(SHAPE, -2, np.float32)
    np.testing.assert_array_equal(made()(Copied(array))[0], -array)
    with pytest.raises(InputError, match=r"'x': found .*Elsewhere, which gives no array: can't convert"):
        made()(Elsewhere(array))


@either
@pytest.mark.parametrize(("given", "text"), [
    (Untouchable(), "Untouchable"), ([[1.0, 2.0]], "list of list of float"), ((), "tuple"), ("x", "str"),
    (2.0, "float"), (None, "NoneType"), (np.ndarray, "type"), (range(3), "range"),
    ([np.ones(1)], "list of numpy.ndarray"),
])
def test_what_is_no_array(made: Callable[[], Any], given: Any, text: str) -> None:
    exe = made()
    with pytest.raises(InputError, match=f"input 'x': found .*{text}, expected an array") as caught:
        exe(given)
    assert "__dlpack__" in str(caught.value)


def test_numpys_own_are_taken_as_they_are() -> None:
    array = np.ones(3)
    assert as_array(array, "input") is array
    assert as_array(np.float32(2), "input").shape == ()
