"""The kernel of the peak measurement, and the measurement."""

from __future__ import annotations

import numpy as np
import pytest

from ngraph_mxnet import _core
from ngraph_mxnet.targets.cpu.machine.isa import supported
from ngraph_mxnet.targets.cpu.machine.peak import measure_peak
from ngraph_mxnet.targets.cpu.microkernels.params import multiply_adds, peak_symbol

ISAS = supported(_core.cpu_features())


@pytest.mark.parametrize("isa", ISAS)
def test_the_kernel_makes_the_operations_that_are_counted(isa):
    kernel = peak_symbol(isa)
    program = _core.BoundProgram([[(kernel, _core.kernel_address(kernel), [(1, 0, 0), (2, 0, 0)], [3], [], 5)]], 0, [])
    executable = _core.Executable(program, None, 0, [], [("f32", (3,))], [("f32", (5, 16))], 2)
    out = np.empty((5, 16), np.float32)
    executable.run([np.array([1.0, 0.5, 2.0], np.float32)], [out])
    steps = 4
    accumulators = multiply_adds(isa) // 16 // steps
    expected = 0.0
    for start in range(accumulators):
        value = 1.0 + start
        for _ in range(3 * steps):
            value = value * 0.5 + 2.0
        expected += value
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_a_peak_is_measured():
    peak = measure_peak(ISAS[0], 1)
    assert peak.threads == 1 and peak.gflops > 1 and peak.gigabytes > 0.1
