"""Elementwise operators of one tensor, in every element type that MXNet computes them in."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from records import FLOATS, NUMBERS, Case, Draw, Operand, Record, dims, maybe, pick

EVERY = (*NUMBERS, "bool")


def _one(*types: str, low: float = -2.0, high: float = 2.0,
         **attrs: st.SearchStrategy[object]) -> Callable[[Draw], Case]:
    """One tensor; float32 half of the time, for which there are more kernels."""

    def case(draw: Draw) -> Case:
        dtype = types[0] if draw(st.booleans()) else pick(draw, *types)
        return Case([Operand(dims(draw), dtype, low, high)], {name: draw(value) for name, value in attrs.items()})

    return case


def _leaky(draw: Draw) -> Case:
    """prelu has a gamma for each channel of axis 1, or one."""
    shape, dtype = dims(draw, 2), pick(draw, *FLOATS)
    kind = pick(draw, "leaky", "elu", "selu", "gelu", "prelu", "rrelu")
    attrs = {"act_type": kind, **maybe(draw, slope=pick(draw, 0.1, 0.3))}
    gamma = [Operand((pick(draw, 1, shape[1]),), dtype)] if kind == "prelu" else []
    return Case([Operand(shape, dtype), *gamma], attrs)


def _cast(draw: Draw) -> Case:
    """From numbers that fit: what a float outside an integer's range becomes, C leaves open."""
    return Case([Operand(dims(draw), pick(draw, *EVERY), low=0, high=9)], {"dtype": pick(draw, *EVERY)})


def _amp_cast(draw: Draw) -> Case:
    """MXNet fails on float64 and bool."""
    types = ("float32", "float16", "int32", "int8")
    return Case([Operand(dims(draw), pick(draw, *types), low=0, high=9)], {"dtype": pick(draw, "float16", "float32")})


def _multicast(draw: Draw) -> Case:
    """MXNet's build fails on float16, for which this operator is made."""
    shape, count = dims(draw), draw(st.integers(1, 3))
    attrs = {"num_outputs": count, **maybe(draw, cast_narrow=st.booleans())}
    return Case([Operand(shape) for _ in range(count)], attrs)


_ACTIVATIONS = st.sampled_from(["relu", "sigmoid", "tanh", "softrelu", "softsign"])
# Whole numbers of the operand, for which these have no poles and their values no fraction near a whole number.
_REALS = "cbrt cos cosh erf exp expm1 sigmoid sin sinh softsign tanh arcsinh arctan radians degrees"
_POSITIVE = "log log10 log1p log2 reciprocal rsqrt sqrt rcbrt gamma gammaln"
_WHOLE = "abs floor negative relu square trunc ceil fix rint round sign logical_not"

RECORDS = [
    *(Record(op, _one(*NUMBERS)) for op in _REALS.split()),
    *(Record(op, _one(*NUMBERS, low=1.0, high=4.0)) for op in _POSITIVE.split()),
    *(Record(op, _one(*FLOATS, low=-0.98, high=0.98)) for op in ["arccos", "arcsin", "arctanh", "tan", "erfinv"]),
    Record("arccosh", _one(*FLOATS, low=1.05, high=5.0)),
    *(Record(op, _one(*NUMBERS, low=-4, high=4)) for op in _WHOLE.split()),
    *(Record(op, _one(*EVERY)) for op in ["_copy", "BlockGrad", "zeros_like", "ones_like"]),
    *(Record(op, lambda draw: Case([Operand(dims(draw))], {"dtype": "int64"}), variant="dtype")
      for op in ["zeros_like", "ones_like"]),
    Record("Activation", _one(*FLOATS, act_type=_ACTIVATIONS)),
    Record("LeakyReLU", _leaky, outputs=(0,)),
    Record("hard_sigmoid", _one(*FLOATS, low=-4, high=4, alpha=st.sampled_from([0.2, 0.5]))),
    Record("clip", _one(*NUMBERS, low=-4, high=4, a_min=st.sampled_from([-1.5, 0.0, 1.0]),
                        a_max=st.sampled_from([1.0, 2.5]))),
    Record("smooth_l1", _one(*FLOATS, scalar=st.sampled_from([0.5, 1.0, 2.0]))),
    Record("Cast", _cast),
    Record("amp_cast", _amp_cast),
    *(Record(op, _one(*NUMBERS, low=-4, high=4)) for op in ["_contrib_round_ste", "_contrib_sign_ste"]),
    Record("_contrib_gradientmultiplier", _one(*EVERY, scalar=st.just(2.0))),
    Record("_contrib_quadratic", _one(*NUMBERS, a=st.just(2.0), b=st.sampled_from([-3.0, 0.0]), c=st.just(1.0))),
    Record("Dropout", _one(*FLOATS, p=st.sampled_from([0.0, 0.5])), outputs=(0,)),
    Record("IdentityAttachKLSparseReg", lambda draw: Case([Operand(dims(draw, 2, 2))])),
    Record("amp_multicast", _multicast),
]

