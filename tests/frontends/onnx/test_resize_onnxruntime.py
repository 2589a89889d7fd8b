"""Resize in every mode gives what ONNX Runtime gives: sizes, places between elements, whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

pytest.importorskip("onnxruntime", reason="onnxruntime of the extra bench is not installed")

from one_node import assert_same, of_one_node, theirs

import ngraph_mxnet

COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
               "tf_crop_and_resize", "tf_half_pixel_for_nn"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
SCALES = [0.25, 1 / 3, 0.5, 0.6, 2 / 3, 0.7, 0.8, 1.1, 1.3, 2.0, 2.5, 3.0]


def image(size: tuple[int, int], dtype: str) -> np.ndarray:
    random = np.random.default_rng(3)
    bounds = (0, 256) if dtype == "uint8" else (-128, 128)
    x = random.integers(*bounds, (1, 2, *size)).astype(dtype)
    return x if x.dtype.kind != "f" else x / x.dtype.type(16)


def resize(size: tuple[int, int], dtype: str, extent: Any, **attributes: Any) -> None:
    """With scales, which are floats, or sizes; `roi` crops."""
    x = image(size, dtype)
    roi = np.array([0.1, 0.2, 0.9, 1.1], np.float32)
    by_scales = isinstance(extent[0], float)
    out = [int(np.float32(n) * np.float32(s)) for n, s in zip(size, extent, strict=True)] if by_scales else extent
    crops = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    if min(out) == 0 or (any if crops else all)(a == b for a, b in zip(size, out, strict=True)):
        return  # of equal sizes ONNX Runtime makes a copy, whatever the attributes, and it does not crop axes that stay
    more = [None, np.array(extent)] if not by_scales else [np.array(extent, np.float32), None]
    assert_same("Resize", [x, roi if crops else None, *more], held=(1, 2, 3), domain="", opset=19, axes=[2, 3],
                **attributes)


def fits(coordinates: str, extent: Any) -> bool:
    """Whether ONNX and ONNX Runtime agree: not on corners of a size that is rounded."""
    return coordinates != "align_corners" or not isinstance(extent[0], float)


SIZES = st.tuples(st.integers(1, 23), st.integers(1, 23))
BY_SIZES = st.lists(st.integers(1, 41), min_size=2, max_size=2)
BY_SCALES = st.lists(st.sampled_from(SCALES), min_size=2, max_size=2)


@given(size=SIZES, extent=st.one_of(BY_SIZES, BY_SCALES), coordinates=st.sampled_from(COORDINATES),
       how=st.sampled_from(NEAREST), dtype=st.sampled_from(["float32", "uint8"]))
def test_nearest(size: tuple[int, int], extent: Any, coordinates: str, how: str, dtype: str) -> None:
    assume(fits(coordinates, extent))
    resize(size, dtype, extent, mode="nearest", coordinate_transformation_mode=coordinates, nearest_mode=how)


@given(size=SIZES, extent=st.one_of(BY_SIZES, BY_SCALES), coordinates=st.sampled_from(COORDINATES),
       dtype=st.sampled_from(["float32", "uint8", "int8", "int32"]))
def test_linear(size: tuple[int, int], extent: Any, coordinates: str, dtype: str) -> None:
    assume(fits(coordinates, extent))
    resize(size, dtype, extent, mode="linear", coordinate_transformation_mode=coordinates)


@given(size=SIZES, extent=st.one_of(BY_SIZES, BY_SCALES), coordinates=st.sampled_from(COORDINATES[:3]),
       a=st.sampled_from([-0.75, -0.5]), exclude=st.integers(0, 1))
def test_cubic(size: tuple[int, int], extent: Any, coordinates: str, a: float, exclude: int) -> None:
    resize(size, "float32", extent, mode="cubic", coordinate_transformation_mode=coordinates, cubic_coeff_a=a,
           exclude_outside=exclude)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("extent", [[0.6, 0.3], [7, 25], [31, 5]])
def test_filters(extent: Any, mode: str, dtype: str) -> None:
    resize((17, 20), dtype, extent, mode=mode, antialias=1)


@pytest.mark.parametrize("dtype", ["int16", "int64", "uint64", "float16", "float64"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_types_that_onnxruntime_lacks(mode: str, dtype: str) -> None:
    """Constants stay as they are; halves between two numbers are truncated where those are integers."""
    x = np.tile(np.array([100, 103], dtype), (1, 1, 2, 1))
    scales = np.array([1, 1, 2, 2], np.float32)
    proto, feeds = of_one_node("Resize", [x, None, scales], held=(2,), domain="", opset=19, mode=mode)
    wanted = np.array([100, 100.75, 102.25, 103]) if mode == "linear" else np.array([99.68359375, 100.6796875,
                                                                                    102.3203125, 103.31640625])
    for backend in ("CPU", "INTERPRETER"):
        (found,) = ngraph_mxnet.compile(proto, backend)(feeds)
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found[0, 0, 1], wanted.astype(dtype), rtol=1e-3 if dtype == "float16" else 1e-6)


def test_what_shrinks_to_nothing_is_empty() -> None:
    x, scales = np.ones((1, 2, 1, 4), np.float32), np.array([1, 1, 0.5, 0.5], np.float32)
    assert_same("Resize", [x, None, scales], held=(2,), domain="", opset=19, mode="linear")


def test_downsampling_of_opset_10_rounds_up() -> None:
    x, scales = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8), np.array([1, 1, 1 / 3, 0.5], np.float32)
    assert_same("Resize", [x, scales], held=(1,), domain="", opset=10)


@pytest.mark.parametrize("coordinates", ["half_pixel", "pytorch_half_pixel", "align_corners"])
@pytest.mark.parametrize("scale", [0.5, 0.25, 2.0])
def test_open_sizes_that_a_scale_does_not_divide(coordinates: str, scale: float) -> None:
    """Once compiled for even sizes, odd ones come, and the other way about."""
    scales = np.array([1, 1, 1, scale], np.float32)
    attributes = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    run = None
    for width in (16, 32, 33, 18, 31):
        x = np.random.default_rng(width).standard_normal((1, 2, 6, width)).astype(np.float32)
        proto, feeds = of_one_node("Resize", [x, None, scales], held=(2,), domain="", opset=19, is_open=True,
                                   **attributes)
        run = run or ngraph_mxnet.compile(proto)
        if coordinates == "align_corners" and width * scale % 1:
            wanted = ngraph_mxnet.compile(proto, "INTERPRETER")(feeds)  # ONNX and ONNX Runtime disagree
        else:
            wanted = theirs(proto, feeds)
        np.testing.assert_allclose(run(x)[0], wanted[0], rtol=1e-5, atol=1e-5)
