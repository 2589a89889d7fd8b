"""Scalar float32 functions that LLVM vectorises: no branches, no tables, no calls.

Special values (NaN, infinities, zeros, overflow) follow libm. Errors are against the exact value.
"""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.targets.cpu.kernels.pointers import absolute, inline, log_exponent, log_mantissa, power_of_two, select

__all__ = ["erf", "exp", "exp_below_one", "expm1", "gate_exp", "log", "log1p", "quick_exp", "tanh", "tanh_ratio"]

F = np.float32
ZERO, HALF, ONE, TWO = F(0), F(0.5), F(1), F(2)
INF, NAN = F(np.inf), F(np.nan)
ROUNDER = F(1.5 * 2**23)
"""Adding it rounds a float of magnitude below 2**22 to an integer, held in the sum's low bits."""
LOG2_E = F(1.4426950408889634)
LN2_HIGH = F(0.693359375)
LN2_LOW = F(-2.12194440e-4)
EXP_LOW, EXP_HIGH = F(-104), F(89)
NORMAL_LOW = F(-87)
"""Above it, e**x is a normal number."""

# exp(r) = 1 + r + r**2 (E0 + E1 r + ...) on |r| <= ln(2) / 2, a Chebyshev fit.
E0, E1, E2, E3 = F(0.500000001), F(0.166666667), F(0.041666464), F(0.00833331082)
E4, E5 = F(0.00139337514), F(0.000198911034)

# 2**r = 1 + r (X1 + X2 r + ...) on |r| <= 1 / 2, a minimax fit.
X1, X2, X3 = F(0.693147004), F(0.240222424), F(0.0555073358)
X4, X5 = F(0.00967151299), F(0.00132647275)

# expm1(x) = x + x**2 (1/2 + x/6 + ...): Taylor, |x| <= 1/2.
M0, M1, M2, M3 = F(1 / 2), F(1 / 6), F(1 / 24), F(1 / 120)
M4, M5, M6 = F(1 / 720), F(1 / 5040), F(1 / 40320)

# log(1 + f) = 2 artanh(s) with s = f / (2 + f): odd in s; L_i fits artanh's tail on |s| <= 0.172.
L0, L1, L2, L3 = F(0.666666666), F(0.400001226), F(0.285507308), F(0.233329128)
SMALLEST_NORMAL, TWO_23 = F(2.0**-126), F(2.0**23)
LOG_SCALE = F(23)

# tanh(x) = x + x**3 (T0 + T1 x**2 + ...) on |x| <= 0.625, a Chebyshev fit.
T0, T1, T2, T3 = F(-0.333333289), F(0.133327693), F(-0.0538508495), F(0.020996894)
T4 = F(-0.00609629952)
TANH_SMALL = F(0.625)

# tanh(x) = x (1 + P1 x**2 + ...) / (1 + Q1 x**2 + ...) on |x| <= 9.2, behind which it is 1: a minimax fit.
P1, P2, P3 = F(0.136713619), F(0.00385761431), F(2.77916687e-05)
P4, P5 = F(3.00683128e-08), F(-1.18230551e-11)
Q1, Q2, Q3, Q4 = F(0.470046936), F(0.0272066181), F(0.000391975403), F(1.27231611e-06)
TANH_LARGE = F(9.2)
GATE_HIGH = F(60)

# erf(x) = x (R0 + R1 x**2 + ...) / (1 + D1 x**2 + ...) on |x| <= 3.93, behind which it is 1: a minimax fit.
R0, R1, R2 = F(1.12837915), F(0.190773964), F(0.0527887823)
R3, R4, R5 = F(0.00377913348), F(0.000284789384), F(2.0419353e-06)
D1, D2, D3 = F(0.502401746), F(0.114253265), F(0.0149964885)
D4, D5 = F(0.00116508157), F(3.80027001e-05)
ERF_LARGE = F(3.93)


@inline
def _clamp(x, low, high):
    """The nearest of low to high; NaN stays."""
    return select(x < low, low, select(x > high, high, x))


@inline
def _exp_rest(x, n):
    """e**(x - n log(2)) for the n nearest to x / log(2)."""
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = ((((E5 * r + E4) * r + E3) * r + E2) * r + E1) * r + E0
    return (p * r * r + r) + ONE


@inline
def _normal_exp(x):
    """e**x, within 2 ulp, where that is a normal number."""
    biased = x * LOG2_E + ROUNDER
    return _exp_rest(x, biased - ROUNDER) * power_of_two(biased)


@inline
def exp(x):
    """e**x, within 2 ulp."""
    bounded = _clamp(x, EXP_LOW, EXP_HIGH)
    n = (bounded * LOG2_E + ROUNDER) - ROUNDER
    p = _exp_rest(bounded, n)
    # 2**n in two factors, as n may lie outside the exponents of normal numbers.
    half = n * HALF + ROUNDER
    rest = (n - (half - ROUNDER)) + ROUNDER
    return (p * power_of_two(half)) * power_of_two(rest)


@inline
def exp_below_one(x):
    """e**x for x of at most 88, within 2 ulp, but 0 below -87. A fifth less work than `exp`."""
    bounded = select(x < NORMAL_LOW, NORMAL_LOW, x)
    return select(x < NORMAL_LOW, ZERO, _normal_exp(bounded))


@inline
def quick_exp(x):
    """e**x for x of at most 88, but 0 below -87. The relative error is below 6e-7 for |x| up to 10, and below 4e-6
    elsewhere. A third less work than `exp_below_one`."""
    bounded = select(x < NORMAL_LOW, NORMAL_LOW, x)
    biased = bounded * LOG2_E + ROUNDER
    r = bounded * LOG2_E - (biased - ROUNDER)
    p = ((((X5 * r + X4) * r + X3) * r + X2) * r + X1) * r + ONE
    return select(x < NORMAL_LOW, ZERO, p * power_of_two(biased))


@inline
def expm1(x):
    """e**x - 1, relative error below 3e-7."""
    p = (((((M6 * x + M5) * x + M4) * x + M3) * x + M2) * x + M1) * x + M0
    return select(absolute(x) < HALF, p * x * x + x, exp(x) - ONE)


@inline
def _log_normal(x, extra):
    """log(x) + extra * log(2) for a positive normal x."""
    f = log_mantissa(x) - ONE
    e = log_exponent(x) + extra
    s = f / (TWO + f)
    z = s * s
    tail = z * (((L3 * z + L2) * z + L1) * z + L0)
    half_square = HALF * f * f
    return e * LN2_HIGH + (f - (half_square - (s * (half_square + tail) + e * LN2_LOW)))


@inline
def log(x):
    """Natural logarithm, within 2 ulp."""
    tiny = x < SMALLEST_NORMAL
    normal = select(tiny, x * TWO_23, x)
    value = _log_normal(normal, select(tiny, -LOG_SCALE, ZERO))
    value = select(x < INF, value, x)
    value = select(x == ZERO, -INF, value)
    return select(x < ZERO, NAN, value)


@inline
def log1p(x):
    """log(1 + x), relative error below 4e-7."""
    y = ONE + x
    exact = y - ONE
    scaled = log(y) * (x / exact)
    # y == 1: x is its own logarithm; infinite y: x / exact is NaN.
    return select(exact == ZERO, x, select(y < INF, scaled, y))


@inline
def gate_exp(x):
    """e**-x for the sigmoid 1 / (1 + e**-x) of a gate: between e**-87 and e**60, so that a product of two is finite."""
    return _normal_exp(_clamp(-x, NORMAL_LOW, GATE_HIGH))


@inline
def tanh(x):
    """Hyperbolic tangent, relative error below 3e-7."""
    z = x * x
    small = ((((T4 * z + T3) * z + T2) * z + T1) * z + T0) * z * x + x
    size = absolute(x)
    large = ONE - TWO / (exp(size + size) + ONE)
    return select(size < TANH_SMALL, small, select(x < ZERO, -large, large))


@inline
def tanh_ratio(x):
    """Two finite numbers whose quotient is the hyperbolic tangent, within 6 ulp (0.7 on average). It may exceed 1.
    Half the work of `tanh`, and several need one division."""
    bounded = _clamp(x, -TANH_LARGE, TANH_LARGE)
    z = bounded * bounded
    above = ((((P5 * z + P4) * z + P3) * z + P2) * z + P1) * z + ONE
    return bounded * above, (((Q4 * z + Q3) * z + Q2) * z + Q1) * z + ONE


@inline
def erf(x):
    """Error function, relative error below 4e-7, within 6 ulp."""
    bounded = _clamp(x, -ERF_LARGE, ERF_LARGE)
    z = bounded * bounded
    above = ((((R5 * z + R4) * z + R3) * z + R2) * z + R1) * z + R0
    below = ((((D5 * z + D4) * z + D3) * z + D2) * z + D1) * z + ONE
    return _clamp(bounded * above / below, -ONE, ONE)
