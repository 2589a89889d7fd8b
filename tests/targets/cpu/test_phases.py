"""Convolutions of data with zeros between its elements, where places of the result meet no data."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kernel_library import SEEDS, every_isa, images

from ngraph_mxnet import compile
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.targets.cpu.planning.layout import AxisPhase, axis_phases


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
    "three axes": (16, 33, 1, (1, 1, 1), (2, 2, 2)),
    "three axes, few channels": (3, 20, 1, (1, 2, 1), (2, 1, 2)),
    "three axes, depthwise": (16, 16, 16, (2, 1, 1), (3, 2, 1)),
}


@every_isa
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("fused", [False, True])
def test_they_are_what_the_epilogue_makes_of_zero(isa: str, case: str, fused: bool) -> None:
    channels, outputs, groups, kernel, steps = CASES[case]
    b = Builder()
    size = (3, 5, 6)[-len(kernel):]
    x, w = b.parameter("x", (2, channels, *size)), b.weight("w", (outputs, channels // groups, *kernel))
    attrs = {"data_dilations": steps, "groups": groups, "pads_end": (1,) * len(kernel)}
    if fused:
        shape = b.convolution(x, w, **attrs).shape
        y = b.convolution(x, w, b.weight("b", (outputs,)), b.parameter("r", shape), **attrs, lower=-0.5,
                                   upper=inf)
    else:
        y = b.convolution(x, w, **attrs)
    graph = b.results(y)
    arrays = [images(seed, 1, 1, 1, parameter.type.size).reshape(parameter.shape)
              for seed, parameter in enumerate(graph.parameters)]
    arrays[0][(0,) * arrays[0].ndim] = np.inf  # what is not met is not multiplied with zeros
    (found,) = compile(graph, "CPU", isa=isa)(*arrays)
    (wanted,) = compile(graph, "INTERPRETER")(*arrays)
    met = np.isfinite(wanted)
    assert not met.all()
    np.testing.assert_allclose(found[met], wanted[met], rtol=1e-4, atol=1e-4)


TRIPLES = st.tuples(*[st.integers(1, 3)] * 3)


@every_isa
@settings(deadline=None, max_examples=30)
@given(seed=SEEDS, channels=st.sampled_from([3, 16, 24]), outputs=st.sampled_from([1, 17, 32]), n=st.integers(1, 3),
       size=TRIPLES, kernel=st.tuples(*[st.integers(1, 4)] * 3), steps=TRIPLES, dilations=TRIPLES,
       pads=st.tuples(*[st.integers(0, 2)] * 6), held=st.booleans())
def test_three_axes(isa: str, seed: int, channels: int, outputs: int, n: int, size: tuple[int, ...],
                    kernel: tuple[int, ...], steps: tuple[int, ...], dilations: tuple[int, ...],
                    pads: tuple[int, ...], held: bool) -> None:
    """Of weights that are packed once, or by each call."""
    reach = [step * (count - 1) + 1 + sum(pads[axis::3]) - far * (taps - 1) for axis, (count, step, far, taps) in
             enumerate(zip(size, steps, dilations, kernel, strict=True))]
    assume(min(reach) > 0)
    b = Builder()
    x = b.parameter("x", (n, channels, *size))
    w = (b.weight if held else b.parameter)("w", (outputs, channels, *kernel))
    graph = b.results(b.convolution(x, w, data_dilations=steps, dilations=dilations, pads_begin=pads[:3],
                                    pads_end=pads[3:]))
    arrays = [images(seed + i, 1, 1, 1, parameter.type.size).reshape(parameter.shape)
              for i, parameter in enumerate(graph.parameters)]
    (found,), (wanted,) = compile(graph, "CPU", isa=isa)(*arrays), compile(graph, "INTERPRETER")(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5 * max(1, np.abs(wanted).max()))


@every_isa
@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(("channels", "outputs", "steps"), [(128, 80, (2, 1, 1)), (96, 48, (1, 2, 2)),
                                                            (64, 112, (2, 2, 2)), (160, 144, (3, 1, 2))])
def test_parts_of_the_outputs(isa: str, held: bool, channels: int, outputs: int, steps: tuple[int, ...]) -> None:
    """Where one width of tiles for all outputs would compute zeros, a part has one of its own, and its weights."""
    b = Builder()
    x = b.parameter("x", (1, channels, 3, 2, 3))
    w = (b.weight if held else b.parameter)("w", (outputs, channels, 3, 3, 3))
    graph = b.results(b.convolution(x, w, data_dilations=steps, pads_begin=(1, 1, 1), pads_end=(1, 1, 1)))
    arrays = [images(i, 1, 1, 1, parameter.type.size).reshape(parameter.shape)
              for i, parameter in enumerate(graph.parameters)]
    (found,), (wanted,) = compile(graph, "CPU", isa=isa)(*arrays), compile(graph, "INTERPRETER")(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5 * np.abs(wanted).max())
