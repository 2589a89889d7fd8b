"""Convolutions of data with zeros between its elements, where places of the result meet no data."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from kernel_library import every_isa, images

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.targets.cpu.planning.phases import AxisPhase, axis_phases


def test_places_that_no_tap_reaches() -> None:
    reached, missed = axis_phases(out=7, kernel=1, dilation=1, step=2, pad=0)
    assert (reached.count, reached.taps, reached.reach()) == (4, 1, 4)
    assert missed == AxisPhase(1, 3, 0, 2, 0, 1, 0) and missed.reach() == 0


CASES = {
    "1x1": (64, 32, 1, (1, 1), (2, 2)),
    "1x1, few channels": (3, 5, 1, (1, 1), (2, 2)),
    "1x1, by rows only": (32, 17, 1, (1, 1), (2, 1)),
    "2x2 by 3": (16, 48, 1, (2, 2), (3, 3)),
    "groups": (32, 32, 2, (1, 1), (2, 2)),
    "depthwise": (32, 32, 32, (1, 1), (2, 2)),
}


@every_isa
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fused", [False, True])
def test_they_are_what_the_epilogue_makes_of_zero(isa: str, case: str, fused: bool) -> None:
    channels, outputs, groups, kernel, steps = CASES[case]
    b = Builder()
    x, w = b.parameter("x", (2, channels, 5, 6)), b.weight("w", (outputs, channels // groups, *kernel))
    attrs = {"data_dilations": steps, "groups": groups, "pads_end": (1, 1)}
    if fused:
        shape = b.convolution(x, w, **attrs).shape
        y = b.convolution_bias_add(x, w, b.weight("b", (outputs,)), b.parameter("r", shape), **attrs, lower=-0.5,
                                   upper=inf)
    else:
        y = b.convolution(x, w, **attrs)
    graph = b.results(y)
    arrays = [images(seed, 1, 1, 1, parameter.type.size).reshape(parameter.shape)
              for seed, parameter in enumerate(graph.parameters)]
    arrays[0][0, 0, 0, 0] = np.inf  # what is not met is not multiplied with zeros
    (found,) = compile(graph, "CPU", isa=isa)(*arrays)
    (wanted,) = compile(graph, "INTERPRETER")(*arrays)
    met = np.isfinite(wanted)
    assert not met.all()
    np.testing.assert_allclose(found[met], wanted[met], rtol=1e-4, atol=1e-4)
