"""Files of earlier formats, which run as ever, and of later ones, which are refused."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import ngraph_runtime
from ngraph_runtime import InputError, ModelError
from ngraph_runtime.reference import verify
from ngraph_runtime.run import main

FOLDER = Path(__file__).resolve().parents[1] / "program" / "format_1"


def numbers(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape).astype(np.float32)


def test_shapes_in_format_1(real_library, capsys):
    model = ngraph_runtime.load(FOLDER / "fixed.bin")
    assert [one.inputs for one in model.shape_sets] == [{"x": (1, 3, 6, 6)}, {"x": (2, 3, 6, 6)}] and not model.ranges
    compared = verify(model)
    assert [(one.shape_set, one.output) for one in compared] == [
        (number, output) for number in (0, 1) for output in ("output0", "output1")]
    assert all(one.difference < 1e-5 for one in compared)
    x = numbers(2, 3, 6, 6)
    np.testing.assert_array_equal(model(x)[1], np.maximum(x, 0))
    assert main([str(FOLDER / "fixed.bin"), "--list"]) == 0
    assert "x" in capsys.readouterr().out


def test_a_range_in_format_1(real_library):
    """It adds to one row, and of more it takes what is above 0; 3 rows are a set of shapes."""
    model = ngraph_runtime.load(FOLDER / "range.bin")
    (found,) = model.ranges
    assert found.symbols == {"N": (1, 8)} and found.guards == ("N - 1 != 0", "N - 1 == 0")
    assert [one.inputs for one in model.shape_sets] == [{"x": (3, 4)}]
    for count in (1, 2, 3, 8):
        x = numbers(count, 4)
        product = x @ numbers(4, 4)
        expected = product + np.ones((2, 4), np.float32) if count == 1 else np.maximum(product, 0)
        np.testing.assert_allclose(model(x)[0], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match=r"with N 1\.\.8"):
        model(numbers(9, 4))


@pytest.mark.parametrize(("number", "text"), [
    (3, "the file has format 3, this library reads 1 to 2: update it, or compile the model by the version that the "
        "library is of"),
    (0, "the file has format 0, this library reads 1 to 2: compile the model again")])
def test_other_formats(real_library, tmp_path, number, text):
    content = (FOLDER / "fixed.bin").read_bytes()
    (tmp_path / "other.ngraph").write_bytes(content[:16] + struct.pack("<I", number) + content[20:])
    with pytest.raises(ModelError, match=text):
        ngraph_runtime.load(tmp_path / "other.ngraph")
