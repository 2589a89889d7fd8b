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

LINEAR = [
    op("FullyConnected", (3, 8), num_hidden=5),
    op("FullyConnected", IMAGE, num_hidden=5, no_bias=True),
    op("FullyConnected", CUBE, num_hidden=5, flatten=False),
    op("dot", (3, 4), (4, 5)), op("dot", (4, 3), (5, 4), transpose_a=True, transpose_b=True),
    op("dot", (4,), (4,)), op("dot", CUBE, (4, 5, 2)), op("dot", (3, 4), (4,)), op("dot", (4,), (4, 3)),
    op("batch_dot", (2, 3, 4), (2, 4, 5)),
    op("batch_dot", (2, 4, 3), (2, 5, 4), transpose_a=True, transpose_b=True),
    op("linalg_gemm2", (2, 3, 4), (2, 5, 4), transpose_b=True, alpha=0.5),
]

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

MOVEMENT = [
    op("Flatten", CUBE), op("Flatten", (3, 4)), op("reshape", CUBE, shape=(-1, 4)),
    op("Reshape", CUBE, shape=(0, -1)),
    op("transpose", CUBE), op("transpose", CUBE, axes=(1, 2, 0)), op("SwapAxis", CUBE, dim1=0, dim2=2),
    op("expand_dims", CUBE, axis=1), op("expand_dims", CUBE, axis=-1),
    op("squeeze", (1, 3, 1, 2)), op("squeeze", (1, 3, 1, 2), axis=0),
    op("squeeze", (1, 3, 1, 2), axis=(0, -2)),
    op("squeeze", (1, 1)), op("depth_to_space", (2, 8, 3, 2), block_size=2),
    op("space_to_depth", (2, 2, 6, 4), block_size=2),
    op("slice", CUBE, begin=(0, 1), end=(2, None)),
    op("slice", CUBE, begin=(None, -1), end=(None, None), step=(-1, -2)),
    op("slice_axis", CUBE, axis=-1, begin=-3, end=None), op("slice_axis", CUBE, axis=1, begin=0, end=-1),
    op("slice_like", CUBE, (2, 2, 3)), op("slice_like", CUBE, (1, 2, 3), axes=(0, -1)),
    op("split", IMAGE, num_outputs=3), op("split", CUBE, num_outputs=2, axis=0, squeeze_axis=True),
    op("_split_v2", IMAGE, indices=(0, 2, 5), axis=1),
    op("_split_v2", IMAGE, indices=(0,), sections=3, axis=1),
    op("reverse", CUBE, axis=(0, 2)), op("flip", CUBE, axis=1),
    op("concat", CUBE, CUBE, dim=-1), op("concat", CUBE, (2, 5, 4)), op("stack", CUBE, CUBE, CUBE, axis=1),
    op("tile", CUBE, reps=(2,)), op("tile", (3, 2), reps=(2, 1, 3)), op("repeat", CUBE, repeats=2),
    op("repeat", CUBE, repeats=3, axis=-2), op("broadcast_to", (1, 3, 1), shape=(2, 0, 4)),
    op("broadcast_axis", (1, 3, 1), axis=(0, 2), size=(2, 5)), op("broadcast_like", (1, 3, 1), CUBE),
    op("reshape_like", CUBE, (4, 6)),
    *(op("pad", (2, 3, 4, 5), mode=mode, pad_width=(0, 0, 0, 0, 1, 2, 3, 1), constant_value=0.5)
      for mode in ("constant", "edge", "reflect")),
    op("take", (5, 3), (2, 2), low=-3, high=8), op("take", CUBE, (4,), axis=1),
    op("Embedding", (2, 3), input_dim=6, output_dim=4, low=-1, high=8),
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

RECORDS = [*LINEAR, *NORMALIZATION, *REDUCTION, *MOVEMENT, *ELEMENTWISE, *LOSS]
