"""The formula of each optimizer, in ops of the IR, for one parameter.

Each is what MXNet 1.9.1 computes, operation by operation and in its order (src/operator/optimizer_op-inl.h and its
neighbours, or the optimizer's own Python), so that float32 gives the same bits but where a sum is taken (LAMB's norms).
What a step may change is no constant but a *number*, a value of shape (1,), by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ngraph_mxnet.ir import Builder, Value

Numbers = Mapping[str, Value]
Flags = Collection[str]
"""The facts that hold at every step: names of branches of a formula."""
Formula = Callable[[Builder, Value, Value, Sequence[Value], Numbers, Flags], list[Value]]
"""A function of (builder, weight, gradient, states, numbers, flags). It returns the new weight, and the new states in
their order."""


def _clipped(b: Any, x: Value, n: Numbers, limit: str = "clip") -> Value:
    return b.minimum(b.maximum(x, n[f"-{limit}"]), n[limit])


def _rescaled(b: Any, gradient: Value, n: Numbers, flags: Flags) -> Value:
    scaled = b.multiply(gradient, n["rescale"])
    return _clipped(b, scaled, n) if "clip" in flags else scaled


def _decayed(b: Any, weight: Value, gradient: Value, n: Numbers, flags: Flags) -> Value:
    """Clipped behind the decay, as Adam's and RMSProp's is."""
    total = b.add(b.multiply(gradient, n["rescale"]), b.multiply(weight, n["wd"]))
    return _clipped(b, total, n) if "clip" in flags else total


def _moving(b: Any, state: Value, new: Value, n: Numbers, rate: str) -> Value:
    return b.add(b.multiply(state, n[rate]), b.multiply(new, n[f"1-{rate}"]))


def sgd(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Numbers, flags: Flags) -> list[Value]:
    """multi_sgd_update and multi_sgd_mom_update; without `clip`, the rate is multiplied by the rescaling first."""
    if "clip" in flags:
        step = b.multiply(_rescaled(b, gradient, n, flags), n["lr"])
    else:
        step = b.multiply(gradient, n["lr*rescale"])
    decay = b.multiply(weight, n["lr*wd"])
    if "momentum" not in flags:
        return [b.subtract(weight, b.add(decay, step))]
    momentum = b.subtract(b.subtract(b.multiply(states[0], n["momentum"]), decay), step)
    return [b.add(weight, momentum), momentum]


def nag(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Numbers, flags: Flags) -> list[Value]:
    """nag_mom_update and sgd_update. The former writes the weight first and then reads it again for the momentum."""
    if "momentum" not in flags:
        return [_one_sgd(b, weight, gradient, n, flags)]
    scaled = _rescaled(b, gradient, n, flags)
    slowed = b.multiply(states[0], n["momentum"])

    def moved(decayed: Value) -> Value:
        return b.subtract(slowed, b.multiply(b.add(scaled, b.multiply(decayed, n["wd"])), n["lr"]))

    new = b.add(b.subtract(weight, slowed), b.multiply(moved(weight), n["momentum+1"]))
    return [new, moved(new)]


def _one_sgd(b: Any, weight: Value, gradient: Value, n: Numbers, flags: Flags) -> Value:
    if "clip" in flags:
        step = b.multiply(_rescaled(b, gradient, n, flags), n["lr"])
    else:
        step = b.multiply(gradient, n["lr*rescale"])
    return b.subtract(b.multiply(weight, n["1-lr*wd"]), step)


def adam(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Numbers, flags: Flags) -> list[Value]:
    """adam_update; the correction of the bias is in the rate."""
    g = _decayed(b, weight, gradient, n, flags)
    mean = _moving(b, states[0], g, n, "beta1")
    variance = _moving(b, states[1], b.square(g), n, "beta2")
    step = b.divide(b.multiply(mean, n["lr"]), b.add(b.sqrt(variance), n["epsilon"]))
    return [b.subtract(weight, step), mean, variance]


def rmsprop(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Numbers, flags: Flags) -> list[Value]:
    """rmsprop_update, and rmspropalex_update where it is `centered`."""
    g = _decayed(b, weight, gradient, n, flags)
    if "centered" not in flags:
        variance = _moving(b, states[0], b.square(g), n, "gamma1")
        step = b.multiply(b.divide(g, b.sqrt(b.add(variance, n["epsilon"]))), n["lr"])
        made, new = [variance], b.subtract(weight, step)
    else:
        variance = b.add(b.multiply(b.multiply(g, n["1-gamma1"]), g), b.multiply(states[0], n["gamma1"]))
        mean = _moving(b, states[1], g, n, "gamma1")
        spread = b.add(b.subtract(variance, b.square(mean)), n["epsilon"])
        delta = b.subtract(b.multiply(states[2], n["gamma2"]), b.divide(b.multiply(g, n["lr"]), b.sqrt(spread)))
        made, new = [variance, mean, delta], b.add(weight, delta)
    return [_clipped(b, new, n, "clip_weights") if "clip_weights" in flags else new, *made]


def adagrad(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Numbers, flags: Flags) -> list[Value]:
    """The operators of `mxnet.optimizer.AdaGrad.update`."""
    g = _rescaled(b, gradient, n, flags)
    history = b.add(states[0], b.square(g))
    step = b.divide(g, b.sqrt(b.add(history, n["epsilon"])))
    return [b.add(weight, b.multiply(b.add(step, b.multiply(weight, n["wd"])), n["-lr"])), history]


def ftrl(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Numbers, flags: Flags) -> list[Value]:
    """ftrl_update. Its (sign(z) * lamda1 - z) * (abs(z) > lamda1) is -sign(z) * max(abs(z) - lamda1, 0)."""
    g = _rescaled(b, gradient, n, flags)
    total = b.add(states[1], b.square(g))
    root = b.sqrt(total)
    change = b.divide(b.multiply(b.subtract(root, b.sqrt(states[1])), weight), n["lr"])
    z = b.add(states[0], b.subtract(g, change))
    shrunk = b.multiply(b.sign(z), b.maximum(b.subtract(b.abs(z), n["lamda1"]), n["zero"]))
    scale = b.add(b.divide(b.add(root, n["beta"]), n["lr"]), n["wd"])
    return [b.negative(b.divide(shrunk, scale)), z, total]


def lamb(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Numbers, flags: Flags) -> list[Value]:
    """multi_lamb_update: Adam's direction, as long as the weight."""
    g = _rescaled(b, gradient, n, flags)
    mean = _moving(b, states[0], g, n, "beta1")
    variance = _moving(b, states[1], b.square(g), n, "beta2")
    if "corrected" in flags:
        unbiased = b.divide(mean, n["1-beta1**t"]), b.divide(variance, n["1-beta2**t"])
    else:
        unbiased = mean, variance
    direction = b.divide(unbiased[0], b.add(b.sqrt(unbiased[1]), n["epsilon"]))
    direction = b.add(direction, b.multiply(weight, n["wd"]))
    length, own = _norm(b, weight), _norm(b, direction)
    if "lower" in flags:
        length = b.maximum(length, n["lower"])
    if "upper" in flags:
        length = b.minimum(length, n["upper"])
    none = b.logical_or(b.equal(length, n["zero"]), b.equal(own, n["zero"]))
    ratio = b.multiply(b.select(none, n["one"], b.divide(length, own)), n["lr"])
    return [b.subtract(weight, b.multiply(direction, ratio)), mean, variance]


def _norm(b: Any, x: Value) -> Value:
    """Return the Euclidean norm of `x`, of shape (1,)."""
    total = b.reduce_sum(b.square(x), axes=tuple(range(x.type.rank)))
    return b.sqrt(b.reshape(total, shape=(1,)))
