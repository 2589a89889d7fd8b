"""Weights that are turned about for each call (a convolution's gradient by its data) are packed from where they lie."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_library import every_isa, images

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder

CASES = {
    "1x1": ((32, 48, 1, 1), {}),
    "3x3": ((32, 48, 3, 3), {"pads_begin": (1, 1), "pads_end": (1, 1)}),
    "few channels": ((17, 3, 3, 3), {}),
    "strided": ((32, 16, 3, 3), {"data_dilations": (2, 2), "pads_begin": (1, 1), "pads_end": (1, 1)}),
    "one axis": ((32, 48, 3), {}),
    "three axes": ((16, 32, 2, 3, 3), {}),
}


@every_isa
@pytest.mark.parametrize("case", CASES)
def test_turned(isa: str, case: str) -> None:
    shape, attrs = CASES[case]
    b = Builder()
    x, weights = b.parameter("x", (2, shape[0], *(9,) * (len(shape) - 2))), b.parameter("weights", shape)
    turned = b.transpose(weights, order=(1, 0, *range(2, len(shape))))
    back = (-1,) * (len(shape) - 2)
    turned = b.slice(turned, begin=[0, 0, *(size - 1 for size in shape[2:])], end=[*turned.shape[:2], *back],
                     strides=[1, 1, *back])
    graph = b.results(b.convolution(x, turned, **attrs))
    arrays = [images(seed, 1, 1, 1, p.type.size).reshape(p.shape) for seed, p in enumerate(graph.parameters)]
    executable = compile(graph, "CPU", isa=isa)
    (found,), (wanted,) = executable(*arrays), compile(graph, "INTERPRETER")(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)
    if case != "three axes":
        assert "copy_4" not in {instruction.name for instruction in executable.main.instructions}
