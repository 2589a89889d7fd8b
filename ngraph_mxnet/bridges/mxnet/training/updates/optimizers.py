"""MXNet's optimizers: which formula each is, with which numbers, and how many states it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from mxnet import optimizer as mx_optimizer
from mxnet.optimizer import Optimizer

from ngraph_mxnet.bridges.mxnet.training.updates import formulae
from ngraph_mxnet.bridges.mxnet.training.updates.formulae import Formula
from ngraph_mxnet.errors import UnsupportedError

F = np.float32
Numbers = Mapping[str, Any]
"""The numbers of one step, by name: Python's numbers and NumPy's float32."""

_METHODS = ("_get_lr", "_get_lrs", "_get_wd", "_get_wds", "_set_current_context", "_update_count", "create_state",
            "create_state_multi_precision", "update", "update_multi_precision")


@dataclass(frozen=True)
class Rule:
    """One class of MXNet's.

    formula: what it computes.
    flags: gives what is so at every step of this optimizer, in order.
    states: gives the number of states of these flags.
    shared: gives the numbers that all parameters have in common.
    own: gives those of one parameter of (optimizer, flags, its rate, its weight decay, how often it was updated).
    grouped: whether MXNet counts and asks its schedule for `aggregate_num` parameters at a time, not for each.
    """

    formula: Formula
    flags: Callable[[Any], tuple[str, ...]]
    states: Callable[[tuple[str, ...]], int]
    shared: Callable[[Any, tuple[str, ...]], Numbers]
    own: Callable[[Any, tuple[str, ...], float, float, int], Numbers]
    grouped: bool = False


def rule_of(optimizer: Any) -> Rule:
    """
    Raises:
        UnsupportedError: it is none of MXNet's own, or another one than is known here; the text says so.
    """
    kind = type(optimizer)
    rule = _RULES.get(kind)
    if rule is None:
        whose = "MXNet's" if kind.__module__.startswith("mxnet.") else "no class of MXNet's"
        raise UnsupportedError(f"the optimizer {kind.__name__}, {whose}, has no compiled update")
    changed = next((name for name, function in _stock[kind] if name in vars(optimizer) or
                    getattr(kind, name) is not function), None)
    if changed is not None:
        raise UnsupportedError(f"the method {changed} of the optimizer {kind.__name__} was replaced")
    return rule


def compiled_optimizers() -> list[str]:
    """The names of the classes that have a compiled update."""
    return sorted(kind.__name__ for kind in _RULES)


def flags_of(rule: Rule, optimizer: Any) -> tuple[str, ...]:
    """
    Raises:
        UnsupportedError: for what no formula stands, such as a negative bound.
    """
    clip = optimizer.clip_gradient
    if clip and clip < 0:
        raise UnsupportedError(f"clip_gradient is {clip}")
    return rule.flags(optimizer)


def _flag(name: str, value: Any) -> tuple[str, ...]:
    return (name,) if value else ()


def _clip(optimizer: Any) -> tuple[str, ...]:
    return _flag("clip", optimizer.clip_gradient)


def _bound(name: str, limit: float) -> Numbers:
    return {name: limit, f"-{name}": -F(limit)}


def _shared(optimizer: Any, flags: tuple[str, ...]) -> dict[str, Any]:
    bounds = _bound("clip", optimizer.clip_gradient) if "clip" in flags else {}
    return {"rescale": optimizer.rescale_grad, **bounds}


def _rate(name: str, value: float) -> Numbers:
    """A rate of decay, and what it leaves, which MXNet computes in float32."""
    return {name: value, f"1-{name}": F(1) - F(value)}


def _momentum(optimizer: Any) -> tuple[str, ...]:
    """
    Raises:
        UnsupportedError: it is negative, which MXNet takes as none and keeps a state for.
    """
    if optimizer.momentum < 0:
        raise UnsupportedError(f"momentum is {optimizer.momentum}")
    return _flag("momentum", optimizer.momentum)


def _sgd_flags(optimizer: Any) -> tuple[str, ...]:
    return (*_clip(optimizer), *_momentum(optimizer))


def _sgd_shared(optimizer: Any, flags: tuple[str, ...]) -> Numbers:
    shared = _shared(optimizer, flags) if "clip" in flags else {}
    return {**shared, "momentum": optimizer.momentum} if "momentum" in flags else shared


def _sgd_own(optimizer: Any, flags: tuple[str, ...], lr: float, wd: float, t: int) -> Numbers:
    rate = {"lr": lr} if "clip" in flags else {"lr*rescale": F(lr) * F(optimizer.rescale_grad)}
    return {**rate, "lr*wd": F(lr) * F(wd)}


def _nag_shared(optimizer: Any, flags: tuple[str, ...]) -> Numbers:
    if "momentum" not in flags:
        return _sgd_shared(optimizer, flags)
    return {**_shared(optimizer, flags), "momentum": optimizer.momentum, "momentum+1": F(optimizer.momentum) + F(1)}


def _nag_own(optimizer: Any, flags: tuple[str, ...], lr: float, wd: float, t: int) -> Numbers:
    if "momentum" in flags:
        return {"lr": lr, "wd": wd}
    rate = {"lr": lr} if "clip" in flags else {"lr*rescale": F(lr) * F(optimizer.rescale_grad)}
    return {**rate, "1-lr*wd": F(1) - F(lr) * F(wd)}


def _plain_own(optimizer: Any, flags: tuple[str, ...], lr: float, wd: float, t: int) -> Numbers:
    return {"lr": lr, "wd": wd}


def _adam_shared(optimizer: Any, flags: tuple[str, ...]) -> Numbers:
    return {**_shared(optimizer, flags), **_rate("beta1", optimizer.beta1), **_rate("beta2", optimizer.beta2),
            "epsilon": optimizer.epsilon}


def _adam_own(optimizer: Any, flags: tuple[str, ...], lr: float, wd: float, t: int) -> Numbers:
    first, second = 1. - optimizer.beta1**t, 1. - optimizer.beta2**t
    return {"lr": lr * (math.sqrt(second) / first), "wd": wd}


def _rmsprop_flags(optimizer: Any) -> tuple[str, ...]:
    if optimizer.clip_weights and optimizer.clip_weights < 0:
        raise UnsupportedError(f"clip_weights is {optimizer.clip_weights}")
    return (*_clip(optimizer), *_flag("centered", optimizer.centered), *_flag("clip_weights", optimizer.clip_weights))


def _rmsprop_shared(optimizer: Any, flags: tuple[str, ...]) -> Numbers:
    return {**_shared(optimizer, flags), **_rate("gamma1", optimizer.gamma1), "epsilon": optimizer.epsilon,
            **({"gamma2": optimizer.gamma2} if "centered" in flags else {}),
            **(_bound("clip_weights", optimizer.clip_weights) if "clip_weights" in flags else {})}


def _adagrad_flags(optimizer: Any) -> tuple[str, ...]:
    return _flag("clip", optimizer.clip_gradient is not None)


def _adagrad_shared(optimizer: Any, flags: tuple[str, ...]) -> Numbers:
    return {**_shared(optimizer, flags), "epsilon": optimizer.float_stable_eps}


def _adagrad_own(optimizer: Any, flags: tuple[str, ...], lr: float, wd: float, t: int) -> Numbers:
    return {"-lr": -lr, "wd": wd}


def _ftrl_shared(optimizer: Any, flags: tuple[str, ...]) -> Numbers:
    return {**_shared(optimizer, flags), "lamda1": optimizer.lamda1, "beta": optimizer.beta, "zero": 0.0}


def _lamb_flags(optimizer: Any) -> tuple[str, ...]:
    for name in ("lower_bound", "upper_bound"):
        if getattr(optimizer, name) and getattr(optimizer, name) < 0:
            raise UnsupportedError(f"{name} is {getattr(optimizer, name)}")
    return (*_clip(optimizer), *_flag("corrected", optimizer.bias_correction), *_flag("lower", optimizer.lower_bound),
            *_flag("upper", optimizer.upper_bound))


def _lamb_shared(optimizer: Any, flags: tuple[str, ...]) -> Numbers:
    bounds: Numbers = {name: getattr(optimizer, f"{name}_bound") for name in ("lower", "upper") if name in flags}
    return {**_adam_shared(optimizer, flags), **bounds, "zero": 0.0, "one": 1.0}


def _lamb_own(optimizer: Any, flags: tuple[str, ...], lr: float, wd: float, t: int) -> Numbers:
    if "corrected" not in flags:
        return {"lr": lr, "wd": wd}
    return {"lr": lr, "wd": wd, **{f"1-{name}**t": F(1) - F(getattr(optimizer, name)) ** F(t)
                                   for name in ("beta1", "beta2")}}


def _momentum_states(flags: tuple[str, ...]) -> int:
    return int("momentum" in flags)


_RULES: dict[type, Rule] = {
    mx_optimizer.SGD: Rule(formulae.sgd, _sgd_flags, _momentum_states, _sgd_shared, _sgd_own, grouped=True),
    mx_optimizer.NAG: Rule(formulae.nag, _sgd_flags, _momentum_states, _nag_shared, _nag_own),
    mx_optimizer.Adam: Rule(formulae.adam, _clip, lambda flags: 2, _adam_shared, _adam_own),
    mx_optimizer.RMSProp: Rule(formulae.rmsprop, _rmsprop_flags, lambda flags: 3 if "centered" in flags else 1,
                               _rmsprop_shared, _plain_own),
    mx_optimizer.AdaGrad: Rule(formulae.adagrad, _adagrad_flags, lambda flags: 1, _adagrad_shared, _adagrad_own),
    mx_optimizer.Ftrl: Rule(formulae.ftrl, _clip, lambda flags: 2, _ftrl_shared, _plain_own),
    mx_optimizer.LAMB: Rule(formulae.lamb, _lamb_flags, lambda flags: 2, _lamb_shared, _lamb_own),
}
_stock: dict[type, list[tuple[str, Any]]] = {
    kind: [(name, getattr(kind, name)) for name in _METHODS] for kind in _RULES}
"""The methods as MXNet has them: this module is imported with MXNet."""


def rates(rule: Rule, optimizer: Optimizer, indices: list[Any]) -> tuple[list[float], list[float]]:
    """Counts an update of each parameter, and gives the learning rates and the weight decays.

    A schedule is asked as MXNet asks it, behind the count of the parameters that it is asked for.
    """
    group = max(optimizer.aggregate_num, 1) if rule.grouped else 1
    if optimizer.lr_scheduler is None or len(indices) <= group:
        optimizer._update_count(indices)
        return optimizer._get_lrs(indices), optimizer._get_wds(indices)
    found: list[float] = []
    for first in range(0, len(indices), group):
        part = indices[first:first + group]
        optimizer._update_count(part)
        found += optimizer._get_lrs(part)
    return found, optimizer._get_wds(indices)
