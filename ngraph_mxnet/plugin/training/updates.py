"""Compiled updates: the formula of each optimizer, MXNet's optimizers with their numbers, and programs of both.

A formula is for one parameter, in ops of the IR. It is what MXNet 1.9.1 computes, operation by operation and in its
order (src/operator/optimizer_op-inl.h and its neighbours, or the optimizer's own Python), so that float32 gives the
same bits but where a sum is taken (LAMB's norms). What a step may change is no constant but a *number*, a value of
shape (1,). Its name is what it is: an expression of attributes of the optimizer and of the parameter's `lr`, `wd` and
`t`, how often it was updated, in float32.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mxnet import optimizer as mx_optimizer
from mxnet.ndarray import NDArray
from mxnet.optimizer import Optimizer

from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.ops.compositions import scalar
from ngraph_mxnet.plugin.training.steps import bound_graph
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.program_cache import Made, get_or_make, program_key

Values = Mapping[str, Value]
Flags = Collection[str]
"""The facts that hold at every step: names of branches of a formula."""
Formula = Callable[[Builder, Value, Value, Sequence[Value], Values, Flags], list[Value]]
"""A function of (builder, weight, gradient, states, numbers, flags). It returns the new weight, and the new states in
their order."""


def _clipped(b: Any, x: Value, n: Values, limit: str = "clip_gradient") -> Value:
    return b.minimum(b.maximum(x, n[f"-{limit}"]), n[limit])


def _rescaled(b: Any, gradient: Value, n: Values, flags: Flags) -> Value:
    scaled = gradient * n["rescale_grad"]
    return _clipped(b, scaled, n) if "clip" in flags else scaled


def _decayed(b: Any, weight: Value, gradient: Value, n: Values, flags: Flags) -> Value:
    """Clipped behind the decay, as Adam's and RMSProp's is."""
    total = gradient * n["rescale_grad"] + weight * n["wd"]
    return _clipped(b, total, n) if "clip" in flags else total


def _moving(state: Value, new: Value, n: Values, rate: str) -> Value:
    return state * n[rate] + new * n[f"1-{rate}"]


def sgd(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Values, flags: Flags) -> list[Value]:
    """multi_sgd_update and multi_sgd_mom_update."""
    step, decay = _sgd_step(b, gradient, n, flags), weight * n["lr*wd"]
    if "momentum" not in flags:
        return [weight - (decay + step)]
    momentum = states[0] * n["momentum"] - decay - step
    return [weight + momentum, momentum]


def nag(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Values, flags: Flags) -> list[Value]:
    """nag_mom_update and sgd_update. The former writes the weight first and then reads it again for the momentum."""
    if "momentum" not in flags:
        return [weight * n["1-lr*wd"] - _sgd_step(b, gradient, n, flags)]
    scaled = _rescaled(b, gradient, n, flags)
    slowed = states[0] * n["momentum"]

    def moved(decayed: Value) -> Value:
        return slowed - (scaled + decayed * n["wd"]) * n["lr"]

    new = weight - slowed + moved(weight) * n["momentum+1"]
    return [new, moved(new)]


def _sgd_step(b: Any, gradient: Value, n: Values, flags: Flags) -> Value:
    """Without `clip`, the rate is multiplied by the rescaling first."""
    return _rescaled(b, gradient, n, flags) * n["lr"] if "clip" in flags else gradient * n["lr*rescale_grad"]


def adam(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Values, flags: Flags) -> list[Value]:
    """adam_update; the correction of the bias is in the rate."""
    g = _decayed(b, weight, gradient, n, flags)
    mean = _moving(states[0], g, n, "beta1")
    variance = _moving(states[1], b.square(g), n, "beta2")
    return [weight - mean * n["lr"] / (b.sqrt(variance) + n["epsilon"]), mean, variance]


def rmsprop(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Values, flags: Flags) -> list[Value]:
    """rmsprop_update, and rmspropalex_update where it is `centered`."""
    g = _decayed(b, weight, gradient, n, flags)
    if "centered" not in flags:
        variance = _moving(states[0], b.square(g), n, "gamma1")
        made, new = [variance], weight - g / b.sqrt(variance + n["epsilon"]) * n["lr"]
    else:
        variance = g * n["1-gamma1"] * g + states[0] * n["gamma1"]
        mean = _moving(states[1], g, n, "gamma1")
        spread = variance - b.square(mean) + n["epsilon"]
        delta = states[2] * n["gamma2"] - g * n["lr"] / b.sqrt(spread)
        made, new = [variance, mean, delta], weight + delta
    return [_clipped(b, new, n, "clip_weights") if "clip_weights" in flags else new, *made]


def adagrad(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Values, flags: Flags) -> list[Value]:
    """The operators of `mxnet.optimizer.AdaGrad.update`."""
    g = _rescaled(b, gradient, n, flags)
    history = states[0] + b.square(g)
    step = g / b.sqrt(history + n["float_stable_eps"])
    return [weight + (step + weight * n["wd"]) * n["-lr"], history]


def ftrl(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Values, flags: Flags) -> list[Value]:
    """ftrl_update. Its (sign(z) * lamda1 - z) * (abs(z) > lamda1) is -sign(z) * max(abs(z) - lamda1, 0)."""
    g = _rescaled(b, gradient, n, flags)
    total = states[1] + b.square(g)
    root = b.sqrt(total)
    change = (root - b.sqrt(states[1])) * weight / n["lr"]
    z = states[0] + (g - change)
    shrunk = b.sign(z) * b.maximum(b.abs(z) - n["lamda1"], n["0"])
    return [-(shrunk / ((root + n["beta"]) / n["lr"] + n["wd"])), z, total]


def lamb(b: Any, weight: Value, gradient: Value, states: Sequence[Value], n: Values, flags: Flags) -> list[Value]:
    """multi_lamb_update: Adam's direction, as long as the weight."""
    g = _rescaled(b, gradient, n, flags)
    mean = _moving(states[0], g, n, "beta1")
    variance = _moving(states[1], b.square(g), n, "beta2")
    first, second = mean, variance
    if "corrected" in flags:
        first, second = mean / n["1-beta1**t"], variance / n["1-beta2**t"]
    direction = first / (b.sqrt(second) + n["epsilon"]) + weight * n["wd"]
    length, own = _norm(b, weight), _norm(b, direction)
    if "lower" in flags:
        length = b.maximum(length, n["lower_bound"])
    if "upper" in flags:
        length = b.minimum(length, n["upper_bound"])
    none = b.equal(length, n["0"]) | b.equal(own, n["0"])
    ratio = b.select(none, n["1"], length / own) * n["lr"]
    return [weight - direction * ratio, mean, variance]


def _norm(b: Any, x: Value) -> Value:
    """Return the Euclidean norm of `x`, of shape (1,)."""
    total = b.reduce_sum(b.square(x), axes=tuple(range(x.type.rank)))
    return b.sqrt(b.reshape(total, shape=(1,)))


_METHODS = ("_get_lr", "_get_lrs", "_get_wd", "_get_wds", "_set_current_context", "_update_count", "create_state",
            "create_state_multi_precision", "update", "update_multi_precision")


@dataclass(frozen=True)
class Rule:
    """One class of MXNet's.

    formula: what it computes.
    flags: gives what is so at every step of this optimizer, in order.
    states: gives the number of states of these flags.
    rate: gives the `lr` of (optimizer, the learning rate, `t`).
    grouped: whether MXNet counts and asks its schedule for `aggregate_num` parameters at a time, not for each.
    """

    formula: Formula
    flags: Callable[[Any], tuple[str, ...]]
    states: Callable[[tuple[str, ...]], int]
    rate: Callable[[Any, float, int], float] = lambda optimizer, lr, t: lr
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


def _corrected(optimizer: Any, lr: float, t: int) -> float:
    return lr * (math.sqrt(1. - optimizer.beta2**t) / (1. - optimizer.beta1**t))


def _rmsprop_flags(optimizer: Any) -> tuple[str, ...]:
    if optimizer.clip_weights and optimizer.clip_weights < 0:
        raise UnsupportedError(f"clip_weights is {optimizer.clip_weights}")
    return (*_clip(optimizer), *_flag("centered", optimizer.centered), *_flag("clip_weights", optimizer.clip_weights))


def _adagrad_flags(optimizer: Any) -> tuple[str, ...]:
    return _flag("clip", optimizer.clip_gradient is not None)


def _lamb_flags(optimizer: Any) -> tuple[str, ...]:
    for name in ("lower_bound", "upper_bound"):
        if getattr(optimizer, name) and getattr(optimizer, name) < 0:
            raise UnsupportedError(f"{name} is {getattr(optimizer, name)}")
    return (*_clip(optimizer), *_flag("corrected", optimizer.bias_correction), *_flag("lower", optimizer.lower_bound),
            *_flag("upper", optimizer.upper_bound))


def _momentum_states(flags: tuple[str, ...]) -> int:
    return int("momentum" in flags)


_RULES: dict[type, Rule] = {
    mx_optimizer.SGD: Rule(sgd, _sgd_flags, _momentum_states, grouped=True),
    mx_optimizer.NAG: Rule(nag, _sgd_flags, _momentum_states),
    mx_optimizer.Adam: Rule(adam, _clip, lambda flags: 2, _corrected),
    mx_optimizer.RMSProp: Rule(rmsprop, _rmsprop_flags, lambda flags: 3 if "centered" in flags else 1),
    mx_optimizer.AdaGrad: Rule(adagrad, _adagrad_flags, lambda flags: 1),
    mx_optimizer.Ftrl: Rule(ftrl, _clip, lambda flags: 2),
    mx_optimizer.LAMB: Rule(lamb, _lamb_flags, lambda flags: 2),
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


_OWN = ("lr", "wd", "t")


_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow}


@functools.cache
def _expression(name: str) -> ast.expr:
    return ast.parse(name, mode="eval").body


@functools.cache
def _attributes(name: str) -> frozenset[str]:
    """What the expression reads."""
    return frozenset(node.id for node in ast.walk(_expression(name)) if isinstance(node, ast.Name))


def number(name: str, optimizer: Any, **own: float) -> float:
    """Return the number of this name. `own`: `lr`, `wd` and `t` of a parameter, for a number that depends on them."""
    known = {each: np.float32(own[each] if each in _OWN else getattr(optimizer, each)) for each in _attributes(name)}

    def value(node: Any) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return known[node.id]
        if isinstance(node, ast.UnaryOp):
            return -value(node.operand)
        return _OPERATIONS[type(node.op)](value(node.left), value(node.right))

    found: float = value(_expression(name))
    return found


@functools.cache
def numbers_of(rule: Rule, flags: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the names of the numbers that the formula reads: those that all parameters share, and each one's own."""
    b = Builder(name="numbers")

    class Asked(dict[str, Value]):
        def __missing__(self, name: str) -> Value:
            return self.setdefault(name, b.parameter(f"number{len(self)}", (1,)))

    asked = Asked()
    weight, gradient, *states = (b.parameter(f"array{place}", (1,)) for place in range(2 + rule.states(flags)))
    rule.formula(b, weight, gradient, states, asked, flags)
    own = [name for name in asked if {*_OWN} & _attributes(name)]
    return [name for name in asked if name not in own], own


NUMBERS = "numbers"


def update_graph(rule: Rule, flags: tuple[str, ...], shapes: Sequence[Sequence[int]]) -> Graph:
    """The update of parameters of these shapes.

    Its parameters are the numbers, f32 of shape (shared + shapes * own,), those that are shared first and then each
    parameter's own; and for each parameter weight, gradient and states. Its results are for each the new weight and
    states.
    """
    shared, own = numbers_of(rule, flags)
    b = Builder(name="update")
    numbers = b.parameter(NUMBERS, (len(shared) + len(shapes) * len(own),))

    def number(place: int) -> Value:
        found: Value = b.slice(numbers, begin=(place,), end=(place + 1,))
        return found

    common = {name: number(place) for place, name in enumerate(shared)}
    results: list[Value] = []
    for position, shape in enumerate(shapes):
        first = len(shared) + position * len(own)
        mine = {name: number(first + place) for place, name in enumerate(own)}
        weight, gradient, *states = (b.parameter(f"{kind}{position}", shape) for kind in
                                     ("weight", "gradient", *(f"state{i}_" for i in range(rule.states(flags)))))
        results += rule.formula(b, weight, gradient, states, {**common, **mine}, flags)
    return b.results(*results)


def bound_update(kind: str, rule: Rule, flags: tuple[str, ...], arrays: Sequence[Sequence[NDArray]]) -> Any:
    """The `_core.BoundGraph` that updates weights and states in place; its `run` is given the numbers.

    Args:
        kind: the name of the optimizer's class, which tells one rule from another.
        arrays: for each parameter weight, gradient and states.

    Raises:
        UnsupportedError: it can't be on these arrays; the text says why.
    """
    shapes = [row[0].shape for row in arrays]
    (program,) = get_or_make(
        lambda: program_key(("update", kind, flags, shapes, numbers_of(rule, flags)), registry.TRAINER, {}),
        lambda: Made([_compiled(rule, flags, shapes)]), small=True).programs
    written = [array for weight, _, *states in arrays for array in (weight, *states)]
    return bound_graph(program.native, [array for row in arrays for array in row], written, in_place=True, given=True)


def clip_graph(shapes: Sequence[Sequence[int]]) -> Graph:
    """The clip of arrays of these shapes by their common norm, as MXNet computes it. Its parameters are the largest
    norm and 1, f32[2], and the arrays. Its results are the scaled arrays and the norm before, f32[1]."""
    b = Builder(name="clip")
    numbers = b.parameter(NUMBERS, (2,))
    most, one = (b.slice(numbers, begin=(place,), end=(place + 1,)) for place in range(2))
    arrays = [b.parameter(f"array{place}", shape) for place, shape in enumerate(shapes)]
    squares = [b.reshape(b.reduce_sum(array * array, axes=tuple(range(len(array.shape))), keep_dims=False),
                         shape=(1,)) for array in arrays]
    norm = b.sqrt(functools.reduce(b.add, squares))
    scale = b.minimum(most / (norm + scalar(b, 1e-8, norm)), scalar(b, 1, norm))
    # Two products are a chain, and only a chain may write over what it reads.
    return b.results(*(array * scale * one for array in arrays), norm)


def bound_clip(arrays: Sequence[NDArray], norm: NDArray) -> Any:
    """The `_core.BoundGraph` that scales the arrays in place and writes their norm; its `run` is given the largest.

    Raises:
        UnsupportedError: it can't be on these arrays; the text says why.
    """
    if not all(array.dtype == np.float32 and array.size for array in arrays):
        raise UnsupportedError("an array is none of float32")
    shapes = [array.shape for array in arrays]
    (program,) = get_or_make(
        lambda: program_key(("clip", shapes), registry.TRAINER, {}),
        lambda: Made([_in_place(clip_graph(shapes), range(1, 1 + len(shapes)))]), small=True).programs
    return bound_graph(program.native, arrays, [*arrays, norm], in_place=True, given=True)


def _compiled(rule: Rule, flags: tuple[str, ...], shapes: Sequence[Sequence[int]]) -> Any:
    """Raises UnsupportedError."""
    graph = update_graph(rule, flags, shapes)
    states = rule.states(flags)
    return _in_place(graph, [first + place for first in range(1, len(graph.parameters), 2 + states)
                             for place in (0, *range(2, 2 + states))])  # the numbers are the first


def _in_place(graph: Graph, replaced: Sequence[int]) -> Any:
    """The compiled graph, whose first results are written over the parameters of these numbers.

    Raises:
        UnsupportedError: a result can't be written over the array that it replaces.
    """
    from ngraph_mxnet.program.compile import compile as compile_graph

    executable: Any = compile_graph(graph, registry.TRAINER, **get_backend(registry.TRAINER).in_place)
    reason = executable.in_the_way(dict(enumerate(replaced)))
    if reason is not None:
        raise UnsupportedError(reason)
    return executable
