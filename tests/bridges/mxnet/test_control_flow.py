"""`foreach`, `while_loop` and `cond` stay with MXNet; what stands around them is compiled."""

from __future__ import annotations

import numpy as np
import pytest
from mxnet_helpers import backend, close, mx, needs_library

from mxnet import gluon  # isort: skip  # the helpers make it importable
from mxnet.gluon import nn  # isort: skip
from ngraph_mxnet import explain
from ngraph_mxnet.bridges.mxnet.binding import gluon_patch

pytestmark = needs_library

STEPS, BATCH, UNITS = 4, 2, 16


class Net(gluon.HybridBlock):
    """Dense layers before, in and after a body."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.before = nn.Dense(UNITS, in_units=UNITS, flatten=False, activation="relu")
        self.inner = nn.Dense(UNITS, in_units=UNITS, flatten=False)
        self.after = nn.Dense(64, in_units=UNITS, flatten=False, activation="tanh")

    def hybrid_forward(self, F, x, state):  # noqa: N803 - MXNet's name
        x = self.before(x)
        return self.after(getattr(self, self.kind)(F, x, state))

    def foreach(self, F, x, state):  # noqa: N803
        def body(step, carried):
            made = F.tanh(self.inner(step) + carried)
            return made, made

        return F.contrib.foreach(body, x, state)[0]

    def while_loop(self, F, x, state):  # noqa: N803
        def body(i, carried):
            return carried, (i + 1, F.tanh(self.inner(carried)))

        first = F.reshape(F.slice_axis(x, axis=0, begin=0, end=1), shape=(BATCH, UNITS))
        outputs, _ = F.contrib.while_loop(lambda i, carried: i < STEPS, body, (F.zeros((1,)), first + state),
                                          max_iterations=STEPS)
        return outputs

    def cond(self, F, x, state):  # noqa: N803
        return F.contrib.cond(F.sum(state) > 0, lambda: F.relu(self.inner(x)), lambda: F.tanh(x))


@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_control_flow_between_regions(kind):
    net = Net(kind)
    net.initialize(mx.init.Uniform(0.5))
    rng = np.random.default_rng(0)
    x = mx.nd.array(rng.uniform(-1, 1, (STEPS, BATCH, UNITS)))
    states = [mx.nd.ones((BATCH, UNITS)), -mx.nd.ones((BATCH, UNITS))]
    with backend(None):
        expected = [net(x, state) for state in states]
    with backend("NGRAPH"):
        net.hybridize()
        for state, wanted in zip(states, expected, strict=True):
            close(net(x, state), wanted)
    assert net.__dict__[gluon_patch.BODIES].latest is not None


@pytest.mark.parametrize("kind", ["foreach", "while_loop", "cond"])
def test_explain_says_why_it_stays(kind):
    net = Net(kind)
    net.initialize()
    symbol = net(mx.sym.var("x"), mx.sym.var("state"))
    partition = explain(symbol, {"x": (STEPS, BATCH, UNITS), "state": (BATCH, UNITS)}).partition
    reasons = {node.op: node.reason for node in partition.left()}
    assert "MXNet runs operator by operator" in reasons[f"_{kind}"]
    assert partition.regions
