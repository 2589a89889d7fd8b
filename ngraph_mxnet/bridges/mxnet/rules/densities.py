"""Probability densities of samples, or their logarithms. (src/operator/random/pdf_op.h)"""

from __future__ import annotations

import math
from collections.abc import Callable

from ngraph_mxnet.bridges.mxnet.rules.registry import Lowering, add_rule, rule
from ngraph_mxnet.bridges.mxnet.symbols.attrs import Attrs
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolNode
from ngraph_mxnet.compositions.tensors import scalar
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir import Builder, Value

Log = Callable[..., Value]
"""Makes the logarithm of the density from a builder, samples, and parameters that broadcast to them."""


def _density(log: Log) -> Lowering:
    def lower(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
        """Samples have the shape of the parameters, and axes behind it for several samples of each."""
        sample, *parameters = inputs
        shape = parameters[0].shape
        if sample.shape[: len(shape)] != shape or any(value.shape != shape for value in parameters):
            raise UnsupportedError(f"found samples {sample.type} and parameters "
                                   f"{', '.join(str(value.type) for value in parameters)}")
        ones = (1,) * (len(sample.shape) - len(shape))
        spread = [b.broadcast(b.reshape(value, shape=(*shape, *ones)), shape=sample.shape) for value in parameters]
        return _result(b, log(b, sample, *spread), attrs)

    return lower


def _result(b: Builder, log: Value, attrs: Attrs) -> Value:
    return log if attrs.bool("is_log", False) else b.exp(log)


def _uniform(b: Builder, sample: Value, low: Value, high: Value) -> Value:
    """The density of any sample: MXNet does not look whether it is between the bounds."""
    return b.negative(b.log(b.subtract(high, low)))


def _normal(b: Builder, sample: Value, mean: Value, deviation: Value) -> Value:
    scaled = b.divide(b.subtract(sample, mean), deviation)
    square = b.multiply(b.multiply(scaled, scaled), scalar(b, -0.5, sample))
    return b.subtract(square, b.add(b.log(deviation), scalar(b, math.log(2 * math.pi) / 2, sample)))


def _gamma(b: Builder, sample: Value, shape: Value, rate: Value) -> Value:
    powers = b.add(b.multiply(shape, b.log(rate)), b.multiply(_less_one(b, shape), b.log(sample)))
    return b.subtract(b.subtract(powers, b.multiply(rate, sample)), b.lgamma(shape))


def _exponential(b: Builder, sample: Value, rate: Value) -> Value:
    return b.subtract(b.log(rate), b.multiply(rate, sample))


def _poisson(b: Builder, sample: Value, rate: Value) -> Value:
    return b.subtract(b.subtract(b.multiply(sample, b.log(rate)), _log_factorial(b, sample)), rate)


def _negative_binomial(b: Builder, sample: Value, limit: Value, failure: Value) -> Value:
    ways = b.subtract(b.subtract(b.lgamma(b.add(sample, limit)), _log_factorial(b, sample)), b.lgamma(limit))
    success = b.log(b.subtract(scalar(b, 1, failure), failure))
    return b.add(ways, b.add(b.multiply(limit, b.log(failure)), b.multiply(sample, success)))


def _generalized_negative_binomial(b: Builder, sample: Value, mean: Value, dispersion: Value) -> Value:
    one = scalar(b, 1, sample)
    limit, failure = b.divide(one, dispersion), b.divide(one, b.add(b.multiply(mean, dispersion), one))
    return _negative_binomial(b, sample, limit, failure)


def _less_one(b: Builder, x: Value) -> Value:
    return b.subtract(x, scalar(b, 1, x))


def _log_factorial(b: Builder, x: Value) -> Value:
    return b.lgamma(b.add(x, scalar(b, 1, x)))


for _name, _log, _operands in (
        ("uniform", _uniform, 3), ("normal", _normal, 3), ("gamma", _gamma, 3), ("exponential", _exponential, 2),
        ("poisson", _poisson, 2), ("negative_binomial", _negative_binomial, 3),
        ("generalized_negative_binomial", _generalized_negative_binomial, 3)):
    add_rule(_density(_log), f"_random_pdf_{_name}", operands=_operands)


@rule("_random_pdf_dirichlet", operands=2)
def dirichlet(b: Builder, inputs: list[Value], attrs: Attrs, node: SymbolNode) -> Value:
    """Samples [*D, ..., K] and concentrations [*D, K] -> [*D, ...]."""
    sample, alpha = inputs
    lead, last = alpha.shape[:-1], alpha.shape[-1:]
    if sample.shape[: len(lead)] != lead or sample.shape[-1:] != last or len(sample.shape) < 2:
        raise UnsupportedError(f"found samples {sample.type} and concentrations {alpha.type}")
    ones = (1,) * (len(sample.shape) - len(alpha.shape))
    alpha = b.reshape(alpha, shape=(*lead, *ones, *last))
    axes = (len(sample.shape) - 1,)
    powers = b.reduce_sum(b.multiply(_less_one(b, alpha), b.log(sample)), axes=axes)
    whole = b.subtract(b.lgamma(b.reduce_sum(alpha, axes=axes)), b.reduce_sum(b.lgamma(alpha), axes=axes))
    return _result(b, b.add(powers, whole), attrs)
