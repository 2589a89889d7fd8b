"""The record of the kernel that computes a cluster step by step."""

from __future__ import annotations

from typing import Any

from ngraph_mxnet.targets.cpu.params.record import Kernels, Span, numbered, whole

CHAIN_STEPS = numbered("identity abs negative sign sqrt square relu exp log sigmoid tanh silu gelu erf softplus rsqrt "
                       "reciprocal add subtract multiply divide maximum minimum")
"""The ops that a step may be, and the number of each; those from `add` on have two operands."""
CHAIN_CHUNK = 512
"""Elements that go through all steps before the next ones do: all registers fit in a core's first cache."""
CHAIN_REGISTERS = 8
CHAIN_INPUTS = 16
CHAIN_OUTPUTS = 4
CHAIN_MEMORY = 16
"""Added to the number of an input that a step reads, and of an output that it writes; the others are registers."""
CHAIN_STEP_INTS = 4
"""Of each step: the op, its operands (twice the same where it has one), the target."""

_INPUTS = [f"i{number}" for number in range(CHAIN_INPUTS)]
_OUTPUTS = [f"o{number}" for number in range(CHAIN_OUTPUTS)]


def _reach(p: Any, size: int) -> list[Span]:
    spans = [whole(name, size, count) for name, count in zip(_INPUTS, p[4:4 + CHAIN_INPUTS], strict=True)]
    spans.append(whole(_OUTPUTS[0], size, p.size))
    # One condition inside the other: four ways through this, not eight.
    if p.outputs > 1:
        spans.append(whole(_OUTPUTS[1], size, p.size))
        if p.outputs > 2:
            spans.append(whole(_OUTPUTS[2], size, p.size))
            if p.outputs > 3:
                spans.append(whole(_OUTPUTS[3], size, p.size))
    return spans


CHAIN = Kernels(
    "chain", tensors=" ".join((_INPUTS[0], *(f"{name}?" for name in _INPUTS[1:]), f">{_OUTPUTS[0]}",
                               *(f">{name}?" for name in _OUTPUTS[1:]))),
    ints=" ".join(("size chunk steps outputs", *(f"count_{number}" for number in range(CHAIN_INPUTS)))),
    sizes=4 + CHAIN_INPUTS, tasks=lambda p: -(-p.size // p.chunk), reach=_reach,
    more=lambda p: (CHAIN_STEP_INTS * p.steps, 0),
)
"""Every output has `size` elements, input i has `count_<i>`: as many, or else its first one stands for all. Where one
is left out, that is 1. The steps follow the named ints, each with `CHAIN_STEP_INTS`."""
