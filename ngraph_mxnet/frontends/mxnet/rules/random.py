"""Operators that draw random numbers, of models that MXNet does not run: its sequence is its own generator's.

Each distribution is made of uniform numbers (`ops/random.py`), as many for each element as for any other. Where a
method rejects candidates, several are drawn at once, and the first that is accepted counts. That none is has a
probability below 1e-9; then the first counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.rules.creation import told_shape
from ngraph_mxnet.frontends.mxnet.rules.registry import EXACT, FLOATS, MOVED, Call, add_rule, rule
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.graph import constant_of
from ngraph_mxnet.ir.types import Shape, f32, f64, i32, i64
from ngraph_mxnet.ops.common import broadcast_shape
from ngraph_mxnet.ops.compositions import converted, iota, reshaped
from ngraph_mxnet.ops.random import next_stream, state_of

Distribution = Callable[..., Value]
"""Takes a builder, a shape, and parameters in f32 that broadcast to the shape. Returns f32 of the shape."""
Parameters = tuple[tuple[str, float], ...]
"""Their names and defaults."""

_GAMMA_CANDIDATES = 8
"""At least 95 % of the candidates are accepted. An even number, as normal numbers come in pairs."""
_POISSON_CANDIDATES = 16
"""At least 75 % of the candidates are accepted from `_FEW` on."""
_FEW, _MOST_OF_FEW = 10.0, 33
"""Below this mean the probabilities of 0, 1, ... are added up. The more numbers that they leave out have 1e-9."""
_MOST_INTEGERS = 1 << 32
"""Uniform numbers of 46 bits choose among them, so that the chances differ by 1e-4 at most."""


def _uniform(b: Builder, shape: Sequence[int]) -> Value:
    """Between 0 and 1, without both."""
    return b.random_uniform(state_of(b), shape=tuple(shape), stream=next_stream(b))


def uniform(b: Builder, shape: Shape, low: Value, high: Value) -> Value:
    return low + _uniform(b, shape) * (high - low)


def _normal_pairs(b: Builder, shape: Sequence[int]) -> tuple[Value, Value]:
    """Independent standard normal numbers, by the method of Box and Muller."""
    radius, angle = b.sqrt(b.log(_uniform(b, shape)) * -2.0), _uniform(b, shape) * (2 * math.pi)
    return radius * b.cos(angle), radius * b.sin(angle)


def normal(b: Builder, shape: Shape, loc: Value, scale: Value) -> Value:
    return loc + scale * _normal_pairs(b, shape)[0]


def exponential(b: Builder, shape: Shape, rate: Value) -> Value:
    return -b.log(_uniform(b, shape)) / rate


def _first_accepted(b: Builder, candidates: Value, accepted: Value) -> Value:
    """Of each element the first candidate along axis 0 that is accepted; the first of all if none is."""
    count = candidates.shape[0]
    place = iota(b, count, 0, candidates.rank, "f32")
    rank = b.select(accepted, float(count) - place, -place)
    best = b.equal(rank, b.reduce_max(rank, axes=(0,), keep_dims=True))
    return b.reduce_sum(b.select(best, candidates, 0), axes=(0,))


def gamma(b: Builder, shape: Shape, alpha: Value, scale: Value) -> Value:
    """By the method of Marsaglia and Tsang for alpha of 1 and more; of a smaller one for alpha + 1, times a uniform
    number to the power 1 / alpha."""
    is_small = b.less(alpha, 1)
    d = b.select(is_small, alpha + 1.0, alpha) - 1 / 3
    x = b.concat(*_normal_pairs(b, (_GAMMA_CANDIDATES // 2, *shape)), axis=0)
    root = b.relu(x * b.rsqrt(d * 9.0) + 1.0)
    v = root * root * root
    limit = x * x * 0.5 + d * (1.0 - v + b.log(v))  # -inf where v is 0
    found = d * _first_accepted(b, v, b.less(b.log(_uniform(b, (_GAMMA_CANDIDATES, *shape))), limit))
    boost = b.power(_uniform(b, shape), 1.0 / alpha)
    return b.select(is_small, found * boost, found) * scale


def poisson(b: Builder, shape: Shape, mean: Value) -> Value:
    """Small means by inversion, others by Hörmann's transformed rejection (PTRS)."""
    known = constant_of(mean)
    if known is not None:
        return (_few if float(known.max()) < _FEW else _many)(b, shape, mean)
    few = _few(b, shape, b.minimum(mean, _FEW))
    return b.select(b.less(mean, _FEW), few, _many(b, shape, b.maximum(mean, _FEW)))


def _few(b: Builder, shape: Shape, mean: Value) -> Value:
    """The first whole number up to which the probabilities exceed a uniform number."""
    whole = iota(b, _MOST_OF_FEW, 0, 1 + len(shape), "f32")
    of = b.maximum(mean, 1e-30)  # 0 has no logarithm
    likely = b.exp(whole * b.log(of) - of - b.lgamma(whole + 1.0))
    passed = b.less_equal(b.cumsum(likely, axis=0), _uniform(b, (1, *shape)))
    return b.reduce_sum(b.convert(passed, element=f32), axes=(0,))


def _many(b: Builder, shape: Shape, mean: Value) -> Value:
    spread = b.sqrt(mean) * 2.53 + 0.931
    slope = spread * 0.02483 - 0.059
    u, v = (_uniform(b, (_POISSON_CANDIDATES, *shape)) for _ in range(2))
    u = u - 0.5
    edge = 0.5 - b.abs(u)
    whole = b.floor((slope * 2.0 / edge + spread) * u + mean + 0.43)
    n = b.maximum(whole, 0) + 1.0
    # log P(whole), of Stirling's series for log n!: of the small terms alone, so that large ones do not cancel
    x = (mean - n) / n
    log_x = b.log1p(x)
    likely = n * (log_x - x) - log_x - b.log(n) * 0.5 - math.log(2 * math.pi) / 2 - 1 / 12 / n + 1 / 360 / (n * n * n)
    drawn = b.log(v * (1.1328 / (spread - 3.4) + 1.1239) / (slope / (edge * edge) + spread))
    return _first_accepted(b, whole, b.logical_and(b.greater_equal(whole, 0), b.less_equal(drawn, likely)))


def negative_binomial(b: Builder, shape: Shape, failures: Value, p: Value) -> Value:
    return poisson(b, shape, gamma(b, shape, failures, (1.0 - p) / p))


def generalized_negative_binomial(b: Builder, shape: Shape, mean: Value, dispersion: Value) -> Value:
    """A Poisson number where the dispersion is 0."""
    is_poisson, wide = b.equal(dispersion, 0), b.maximum(dispersion, 1e-30)
    return poisson(b, shape, b.select(is_poisson, mean, gamma(b, shape, 1.0 / wide, mean * wide)))


def _bernoulli(b: Builder, shape: Shape, p: Value) -> Value:
    return b.convert(b.less(_uniform(b, shape), p), element=f32)


# ---- operators ----------------------------------------------------------------------------------------------------


def _f32(b: Builder, value: Value | float) -> Value:
    return converted(b, value, f32) if isinstance(value, Value) else b.constant(value, f32)


def _of_attributes(draw: Distribution, names: Parameters, b: Builder, attrs: Call) -> Value:
    """Numbers of one distribution."""
    return draw(b, told_shape(attrs, attrs.node), *(_f32(b, attrs.float(name, default)) for name, default in names))


def _as_data(draw: Distribution, names: Parameters, b: Builder, attrs: Call, x: Value) -> Value:
    """Numbers of one distribution, in the shape and type of the input."""
    found = draw(b, x.shape, *(_f32(b, attrs.float(name, default)) for name, default in names))
    return converted(b, found, x)


def _of_inputs(draw: Distribution, b: Builder, attrs: Call, *inputs: Value) -> Value:
    """Numbers of the distribution of each place of the inputs, in a shape behind theirs."""
    shape, more = inputs[0].shape, attrs.ints("shape", ())
    if any(value.shape != shape for value in inputs):
        raise UnsupportedError(f"found {', '.join(str(value.type) for value in inputs)}, expected one shape")
    apart = (*shape, *(1 for _ in more))
    return draw(b, (*shape, *more), *(reshaped(b, _f32(b, value), apart) for value in inputs))


_DISTRIBUTIONS: dict[str, tuple[Distribution, Parameters]] = {
    "uniform": (uniform, (("low", 0.0), ("high", 1.0))),
    "normal": (normal, (("loc", 0.0), ("scale", 1.0))),
    "exponential": (exponential, (("lam", 1.0),)),
    "gamma": (gamma, (("alpha", 1.0), ("beta", 1.0))),
    "poisson": (poisson, (("lam", 1.0),)),
    "negative_binomial": (negative_binomial, (("k", 1.0), ("p", 1.0))),
    "generalized_negative_binomial": (generalized_negative_binomial, (("mu", 1.0), ("alpha", 1.0))),
}
"""The distributions, and their parameters with defaults as attributes have them."""

for _name, (_draw, _parameters) in _DISTRIBUTIONS.items():
    add_rule(partial(_of_attributes, _draw, _parameters), f"_random_{_name}", operands=0, ignored=["ctx"],
             result="dtype", draws=True)
    add_rule(partial(_as_data, _draw, _parameters), f"_random_{_name}_like", operands=1, types=FLOATS, draws=True)
    add_rule(partial(_of_inputs, _draw), f"_sample_{_name}", operands=len(_parameters), types=EXACT, result="dtype",
             draws=True)


def _of_numpy(draw: Distribution, names: Sequence[str], b: Builder, attrs: Call, *inputs: Value,
              is_behind: bool = False) -> Value:
    """Numbers of the distribution of each place of the parameters, which are attributes or inputs. `is_behind`: the
    parameters' shape is behind the size, else broadcast to it."""
    rest = [_f32(b, value) for value in inputs]
    given = [attrs.float(name, None) for name in names]
    found = [rest.pop(0) if number is None and rest else _f32(b, 1.0 if number is None else number)
             for number in given]
    size, own = attrs.ints("size", None), broadcast_shape([value.shape for value in found])
    shape = (*(size or ()), *own) if is_behind else own if size is None else size
    if broadcast_shape([shape, own]) != shape:
        raise UnsupportedError(f"size={size}, and the parameters have shape {own}")
    return draw(b, shape, *found)


_NUMPY: dict[str, tuple[Distribution, tuple[str, ...]]] = {
    "uniform": (uniform, ("low", "high")),
    "normal": (normal, ("loc", "scale")),
    "gamma": (gamma, ("shape", "scale")),
    "exponential": (lambda b, shape, scale: -b.log(_uniform(b, shape)) * scale, ("scale",)),
    "gumbel": (lambda b, shape, loc, scale: loc - scale * b.log(-b.log(_uniform(b, shape))), ("loc", "scale")),
    "logistic": (lambda b, shape, loc, scale: loc - scale * b.log(1.0 / _uniform(b, shape) - 1.0), ("loc", "scale")),
    "pareto": (lambda b, shape, a: b.expm1(-b.log(_uniform(b, shape)) / a), ("a",)),
    "rayleigh": (lambda b, shape, scale: scale * b.sqrt(b.log(_uniform(b, shape)) * -2.0), ("scale",)),
    "weibull": (lambda b, shape, a: b.power(-b.log(_uniform(b, shape)), 1.0 / a), ("a",)),
}
"""NumPy's distributions, and their parameters."""

for _name, (_draw, _names) in _NUMPY.items():
    add_rule(partial(_of_numpy, _draw, _names), f"_npi_{_name}", types=EXACT, ignored=["ctx"], result="dtype",
             draws=True)
    if _name in ("uniform", "normal"):
        add_rule(partial(_of_numpy, _draw, _names, is_behind=True), f"_npi_{_name}_n", types=EXACT, ignored=["ctx"],
                 result="dtype", draws=True)


@rule("_npi_bernoulli", types=EXACT, ignored=["ctx"], result="dtype", draws=True)
def bernoulli(b: Builder, attrs: Call, *inputs: Value) -> Value:
    """1 with a probability, or with the sigmoid of a logit; else 0."""
    if not attrs.bool("is_logit"):
        attrs.ignore("logit")
        return _of_numpy(_bernoulli, ("prob",), b, attrs, *inputs)
    attrs.ignore("prob")
    return _of_numpy(lambda b, shape, logit: _bernoulli(b, shape, b.sigmoid(logit)), ("logit",), b, attrs, *inputs)


@rule("_random_randint", operands=0, ignored=["ctx"], draws=True)
def randint(b: Builder, attrs: Call) -> Value:
    """Whole numbers from `low` to below `high`, of two uniform numbers each, in float64."""
    low, high = attrs.int("low"), attrs.int("high")
    if not 0 < high - low <= _MOST_INTEGERS:
        raise UnsupportedError(f"low={low}, high={high}: expected from 1 to {_MOST_INTEGERS} numbers")
    shape = told_shape(attrs, attrs.node)
    coarse, fine = (b.convert(_uniform(b, shape), element=f64) for _ in range(2))
    place = b.floor((coarse + (fine - 0.5) * 2.0**-23) * float(high - low))
    element = attrs.element("dtype", i32)
    return b.convert(b.convert(place, element=i64) + low, element=element)


@rule("_sample_multinomial", operands=1, types=EXACT, draws=True)
def multinomial(b: Builder, attrs: Call, data: Value) -> Sequence[Value]:
    """The first place up to which the probabilities along the last axis exceed a uniform number, and its probability's
    logarithm."""
    more, outer, count = attrs.ints("shape", ()), data.shape[:-1], data.shape[-1]
    shape = (*outer, *more) or (1,)
    draws = 1 if not more else math.prod(more)
    likely = reshaped(b, _f32(b, data), (*outer, 1, count))
    passed = b.less_equal(b.cumsum(likely, axis=likely.rank - 1), _uniform(b, (*outer, draws, 1)))
    places = b.reduce_sum(b.convert(passed, element=f32), axes=(likely.rank - 1,))
    places = b.minimum(places, count - 1.0)
    element = attrs.element("dtype", i32)
    found = reshaped(b, b.convert(places, element=element), shape)
    if not attrs.bool("get_prob", False):
        return [found]
    chosen = b.gather_elements(data, b.convert(places, element=i64), axis=data.rank - 1)
    return [found, reshaped(b, b.log(chosen), shape)]


@rule("_shuffle", operands=1, types=MOVED, draws=True)
def shuffle(b: Builder, attrs: Call, x: Value) -> Value:
    """The places along the first axis, in the order of uniform numbers."""
    return b.gather(x, b.argsort(_uniform(b, x.shape[:1]), axis=0), axis=0)
