"""Records of operator applications: name, the symbol, and the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import ngraph_mxnet  # noqa: F401  (makes mxnet importable on current NumPy)

# isort: split
import mxnet as mx
from mxnet.symbol import Symbol

sym = mx.sym


class Record(NamedTuple):
    name: str
    build: Callable[[], Symbol]
    shapes: dict[str, tuple[int, ...]]
    low: float = -2.0
    high: float = 2.0


def _create(op: str, inputs: list[Symbol], **attrs: object) -> Symbol:
    function = getattr(sym, op, None) or getattr(sym._internal, op)
    return function(*inputs, name="op", **attrs)


def op(name: str, *shapes: tuple[int, ...], low: float = -2.0, high: float = 2.0, **attrs: object) -> Record:
    """An operator on data of these shapes; parameters that MXNet infers come by themselves."""
    title = name + "".join(f"-{key}={value}" for key,
       value in attrs.items()) + "-" + "x".join(map(str, shapes))

    def build() -> Symbol:
        return _create(name, [sym.var(f"x{i}") for i in range(len(shapes))], **attrs)

    return Record(title.replace(" ", ""), build, {f"x{i}": shape for i, shape in enumerate(shapes)}, low,
       high)


IMAGE = (2, 6, 9, 7)
CUBE = (2, 3, 4)

NORMALIZATION = [op("Dropout", CUBE, p=0.7)]

REDUCTION = [
    *(op(name, CUBE, **attrs) for name in ("sum", "mean", "prod", "max", "min")
      for attrs in ({}, {"axis": 1}, {"axis": (0, -1), "keepdims": True}, {"axis": 1, "exclude": True})),
    op("sum", CUBE, keepdims=True), op("sum", CUBE, axis=()), op("mean", CUBE, axis=(), exclude=True),
    op("norm", CUBE), op("norm", CUBE, axis=1, keepdims=True), op("norm", CUBE, ord=1, axis=(0, 2)),
    *(op(name, CUBE, **attrs) for name in ("argmax", "argmin")
      for attrs in ({}, {"axis": 1}, {"axis": -1, "keepdims": True})),
    op("argmax_channel", (3, 4)),
]

ELEMENTWISE = [
    *(op(name, CUBE) for name in (
        "abs", "arcsinh", "arctan", "cbrt", "ceil", "cos", "cosh", "degrees", "erf", "exp", "expm1", "fix",
        "floor",
        "logical_not", "negative", "ones_like", "radians", "rcbrt", "reciprocal", "relu", "rint", "round",
        "sigmoid",
        "sign", "sin", "sinh", "softsign", "square", "tan", "tanh", "trunc", "zeros_like", "identity",
        "BlockGrad",
        "hard_sigmoid", "smooth_l1",
    )),
    *(op(name, CUBE, low=0.1, high=5) for name in ("log", "log10", "log1p", "log2", "sqrt", "rsqrt")),
    *(op(name, CUBE, low=-0.9, high=0.9) for name in ("arccos", "arcsin", "arctanh")),
    op("arccosh", CUBE, low=1.1, high=4), op("hard_sigmoid", CUBE, alpha=0.5, beta=0.1),
    *(op("Activation", CUBE, act_type=kind, low=-30, high=30) for kind in
      ("relu", "sigmoid", "tanh", "softrelu", "softsign")),
    *(op("LeakyReLU", IMAGE, act_type=kind) for kind in ("leaky", "elu", "selu", "gelu", "prelu")),
    Record("rrelu", lambda: sym.LeakyReLU(sym.var("x0"), act_type="rrelu", upper_bound=0.5)[0],
       {"x0": IMAGE}),
    op("LeakyReLU", IMAGE, act_type="leaky", slope=0.1), op("LeakyReLU", IMAGE, act_type="elu", slope=0.7),
    op("clip", CUBE, a_min=-1, a_max=0.5), op("Cast", CUBE, dtype="float32"),
    *(op(f"elemwise_{name}", CUBE, CUBE) for name in ("add", "sub", "mul", "div")),
    *(op(f"broadcast_{name}", CUBE, (1, 3, 1)) for name in (
        "add", "sub", "mul", "div", "mod", "maximum", "minimum", "hypot", "equal", "not_equal", "greater",
        "greater_equal", "lesser", "lesser_equal", "logical_and", "logical_or", "logical_xor")),
    op("broadcast_power", CUBE, (1, 3, 1), low=0.1),
    *(op(f"_{name}", CUBE, CUBE) for name in (
        "maximum", "minimum", "mod", "hypot", "equal", "not_equal", "greater", "greater_equal", "lesser",
        "lesser_equal", "logical_and", "logical_or", "logical_xor")),
    op("_power", CUBE, CUBE, low=0.1),
    *(op(f"_{name}_scalar", CUBE, scalar=scalar) for scalar in (1.5, -0.5) for name in (
        "plus", "minus", "rminus", "mul", "div", "rdiv", "mod", "rmod", "maximum", "minimum", "hypot",
        "equal",
        "not_equal", "greater", "greater_equal", "lesser", "lesser_equal", "logical_and", "logical_or",
        "logical_xor")),
    op("_power_scalar", CUBE, scalar=2), op("_power_scalar", CUBE, scalar=-0.5, low=0.1),
    op("_rpower_scalar", CUBE, scalar=1.5),
    op("add_n", CUBE, CUBE, CUBE), op("add_n", CUBE), op("where", CUBE, CUBE, CUBE),
    op("where", (2,), CUBE, CUBE),
]

LOSS = [
    *(op(name, CUBE, **attrs) for name in ("softmax", "log_softmax", "softmin")
      for attrs in ({}, {"axis": 1}, {"temperature": 2.5, "axis": 0})),
    op("SoftmaxActivation", IMAGE), op("SoftmaxActivation", IMAGE, mode="channel"),
    op("SoftmaxOutput", (3, 5)), op("SoftmaxOutput", IMAGE, multi_output=True, grad_scale=2),
    op("SoftmaxOutput", CUBE, preserve_shape=True, use_ignore=True, ignore_label=2),
    op("LinearRegressionOutput", (3, 4)), op("LogisticRegressionOutput", (3, 4), grad_scale=3),
    op("MAERegressionOutput", (3, 4)), op("SVMOutput", (3, 4), margin=2), op("MakeLoss", CUBE),
    op("make_loss", CUBE),
]

RECORDS = [*NORMALIZATION, *REDUCTION, *ELEMENTWISE, *LOSS]
