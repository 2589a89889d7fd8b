"""Each rewrite: what it makes, and what it leaves alone with which reason. A row a case."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from pass_helpers import check, form, ops, run_pass

from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.passes.fuse import (
    clamp_fusion,
    default_bias,
    fuse_scale_shift,
    pad_fusion,
    pick_fusion,
    residual_fusion,
    swish_fusion,
)
from ngraph_mxnet.passes.movement import global_pool, movement, one_hot_product, pixel_shuffle, scattered
from ngraph_mxnet.passes.pipelines import ConstantFolding, affine_folding, batch_norm_folding
from ngraph_mxnet.passes.simplify import Cse, DeadCode, algebraic, dropout_removal, whole_numbers

Build = Callable[[Builder], "Value | tuple[Value, ...]"]
INF = math.inf


@dataclass(frozen=True)
class Case:
    """After `make`'s pass, `left` are the ops of `build`'s graph that depend on data; `miss` is reported."""

    name: str
    make: Callable
    build: Build
    left: str
    miss: str = ""


def x(b: Builder, dtype: str = "f32", shape=(2, 3, 5, 6)) -> Value:
    """The data: one parameter a graph."""
    found = [p for p in b.graph.parameters if p.name == "data"]
    return found[0] if found else b.parameter("data", shape, dtype)


def w(b: Builder, *shape: int, weight: bool = True, kind: str = "w", dtype: str = "f32") -> Value:
    return (b.weight if weight else b.parameter)(f"{kind}{len(b.graph.parameters)}", shape, dtype)


def whole(b: Builder) -> Value:
    return w(b, 4, 6, 2, weight=False)


def spread(b: Builder, indexed: int = 3, base: Value | None = None, reduction: str = "add") -> Value:
    """Updates in zeros [4, 6, 2] at coordinates in the first axes, of which some come twice."""
    at = b.constant(np.array([[0, 3, 3, 2, 0], [5, 0, 0, 1, 5], [1, 0, 0, 1, 0]][:indexed]))
    zeros = b.broadcast(c(b, 0.0) if base is None else base, shape=(4, 6, 2))
    return b.scatter_nd(zeros, at, x(b, shape=(5, *(4, 6, 2)[indexed:])), reduction=reduction)


def padded(b: Builder, value: Value, before: int, after: int) -> Value:
    """Zeros before and behind the channels."""
    return b.pad(value, pads_begin=(0, before, 0, 0), pads_end=(0, after, 0, 0))


def conv(b: Builder, data: Value | None = None, *, weight: bool = True, dtype: str = "f32",
         **attrs) -> Value:
    data = x(b, dtype) if data is None else data
    return b.convolution(data, w(b, 3, data.shape[1], 1, 1, weight=weight, dtype=dtype), **attrs)


def conv_bias(b: Builder, **attrs) -> Value:
    return b.convolution(x(b), w(b, 3, 3, 1, 1), w(b, 3), **attrs)


def conv_bias_add(b: Builder, **attrs) -> Value:
    return b.convolution(x(b), w(b, 3, 3, 1, 1), w(b, 3), x(b), **attrs)


def dense(b: Builder, *, transposed: bool = True, shape=(2, 7)) -> Value:
    data = x(b, shape=shape)
    return b.matmul(data, w(b, *((4, 7) if transposed else (7, 4))), transpose_b=transposed)


def bn(b: Builder, value: Value, *, weight: bool = True) -> Value:
    vectors = [w(b, value.shape[1], kind=kind, weight=weight, dtype=value.type.element.name)
               for kind in ("gamma", "beta", "mean", "var")]
    return b.batch_norm(value, *vectors)


def pad(b: Builder, value: float = 0.0, mode: str = "constant", begin=(0, 0, 1, 0), end=(0, 0, 0, 2),
        data: Value | None = None) -> Value:
    return b.pad(x(b) if data is None else data, pads_begin=begin, pads_end=end, value=value, mode=mode)


def picked(b: Builder, rows: Value | None = None, *, axis: int = 1, own: int = 1, shape=(4, 6), count=None) -> Value:
    """Elements of log_softmax along `own`, by default one a row."""
    rows = b.log_softmax(x(b, shape=shape), axis=axis) if rows is None else rows
    return b.gather_elements(rows, b.parameter("label", count or (rows.shape[0], 1), "i64"), axis=own)


def channels(b: Builder, begin: int, end: int) -> Value:
    return b.slice(x(b), begin=(0, begin, 0, 0), end=(2, end, 5, 6))


def s(b: Builder) -> Value:
    """One number a channel, which differs from run to run."""
    return w(b, 3, 1, 1, kind="s", weight=False)


def two(value: Value, read: Callable[[Value], Value]) -> tuple[Value, Value]:
    """`value` read, and a result too."""
    return read(value), value


def c(b: Builder, value, dtype: str | None = None) -> Value:
    return b.constant(value, dtype)


def silu(b: Builder, turned: bool = False) -> Value:
    value = x(b)
    return b.multiply(b.sigmoid(value), value) if turned else b.multiply(value, b.sigmoid(value))


def gelu(b: Builder, *, half: str = "last", inside: str = "divide", root: float = 2**0.5, other: bool = False) -> Value:
    value, number = x(b), np.float32(root if inside == "divide" else 1 / root)
    sum_ = b.add(b.erf(b.apply(inside, value, c(b, number))), c(b, np.float32(1)))
    factor = w(b, *value.shape, weight=False) if other else value
    if half == "first":
        return b.multiply(b.multiply(factor, c(b, np.float32(0.5))), sum_)
    if half == "sum":
        return b.multiply(factor, b.multiply(c(b, np.float32(0.5)), sum_))
    return b.multiply(b.multiply(factor, sum_), c(b, np.float32(0.5)))


def rows(b: Builder) -> Value:
    """A product of rows, of which an exporter makes a tensor of rank 3."""
    return b.reshape(dense(b, shape=(6, 7)), shape=(2, 3, 4))


def swish(b: Builder, slope: float | None = 0.2, offset: float | None = 3.0, lower: float = 0.0,
          upper: float = 6.0) -> Value:
    inside = x(b) if slope is None else b.multiply(x(b), c(b, slope))
    inside = inside if offset is None else b.add(c(b, np.full((1, 3, 1, 1), offset, "f4")), inside)
    return b.multiply(b.clamp(inside, lower=lower, upper=upper), x(b))


def one_hot(b: Builder, first: int = 0, *, transpose_b: bool = False, weight: bool = True) -> Value:
    """Embeddings of numbers about from -6 to 6, of which there are rows for 0 to 4."""
    line = c(b, np.arange(first, first + 5, dtype="i4").reshape(1, 1, 5))
    hot = b.convert(b.equal(x(b, "i32", (2, 3, 1)), line), element="f32")
    weights = w(b, *((4, 5) if transpose_b else (5, 4)), weight=weight)
    return b.matmul(b.reshape(hot, shape=(6, 5)), weights, transpose_b=transpose_b)


def upward(b: Builder, outputs: int = 2, kernel: int = 2, border: int = 1, *, weight: bool = True,
           steps: tuple[int, int] | None = None, biased: bool = True, **attrs) -> Value:
    """Data with zeros between its elements: a transposed convolution."""
    weights = w(b, outputs, 3, kernel, kernel, weight=weight)
    attrs = {"data_dilations": steps or (kernel, kernel), "pads_begin": (border,) * 2, "pads_end": (border,) * 2,
             **attrs}
    return b.convolution(x(b), weights, w(b, outputs), **attrs) if biased else b.convolution(
        x(b), weights, **attrs)


def stepped(b: Builder, lower: float = -128.0, upper: float = 127.0, element: str = "i8") -> Value:
    """Data as quantised numbers."""
    return b.convert(b.clamp(b.round(x(b)), lower=lower, upper=upper), element=element)


SIMPLIFY = [
    Case("to 8 bits and back", whole_numbers, lambda b: b.convert(stepped(b), element="f32"), "clamp round"),
    Case("to 8 bits, pooled, and back", whole_numbers, lambda b: b.convert(b.convert(b.clamp(b.round(b.max_pool(
        b.convert(stepped(b), element="f32"), kernel=(2, 2))), lower=-128.0, upper=127.0), element="i8"),
        element="f32"), "clamp round max_pool"),
    Case("to 8 bits and back, fractions", whole_numbers,
         lambda b: b.convert(b.convert(b.clamp(x(b), lower=-2.0, upper=2.0), element="i8"), element="f32"),
         "clamp convert convert"),
    Case("to too few bits and back", whole_numbers,
         lambda b: b.convert(stepped(b, upper=255.0, element="i8"), element="f32"), "clamp round convert convert",
         "the integers between have no room"),
    Case("bounds that are not whole", whole_numbers,
         lambda b: b.convert(stepped(b, upper=2.5), element="f32"), "round clamp convert convert"),
    Case("clamped within", whole_numbers,
         lambda b: b.clamp(b.convert(x(b, "i8"), element="f32"), lower=-128.0, upper=200.0), "convert"),
    Case("clamped further", whole_numbers,
         lambda b: b.clamp(b.convert(x(b, "i8"), element="f32"), lower=0.0, upper=200.0), "convert clamp"),
    Case("rounded twice", whole_numbers, lambda b: b.round(b.transpose(b.convert(x(b, "i32"), element="f32"),
                                                                       order=(0, 2, 3, 1))), "convert transpose"),
    Case("both of two kinds", whole_numbers, lambda b: b.convert(b.convert(b.concat(
        b.round(b.clamp(x(b), lower=0.0, upper=255.0)), b.round(b.clamp(x(b), lower=-9.0, upper=0.0)), axis=1),
        element="i32"), element="f32"), "clamp round clamp round concat"),
    Case("rounding read twice", whole_numbers,
         lambda b: (lambda r: (b.clamp(r, lower=0.0, upper=2.0), r))(b.round(x(b))), "round clamp", "other readers"),
    Case("x+0", algebraic, lambda b: b.add(c(b, 0.0), x(b)), ""),
    Case("x+0 broadcast", algebraic, lambda b: b.add(x(b), c(b, np.zeros((4, 1, 1, 1, 1), "f4"))), "add",
         "the constant broadcasts f32[2,3,5,6] to f32[4,2,3,5,6]"),
    Case("x+xy", algebraic, lambda b: b.add(x(b), b.multiply(b.sigmoid(s(b)), x(b))), "sigmoid add multiply"),
    Case("xy+x", algebraic, lambda b: b.add(b.multiply(x(b), w(b, 3, 1, 1, weight=False)), x(b)), "add multiply"),
    Case("x+xy, y as large", algebraic, lambda b: b.add(x(b), b.multiply(b.tanh(x(b)), x(b))), "tanh multiply add"),
    Case("x+xy read twice", algebraic,
         lambda b: two(b.multiply(x(b), s(b)), lambda v: b.add(x(b), v)), "multiply add", "multiply has other readers"),
    Case("x+xy int", algebraic, lambda b: b.add(x(b, "i32"), b.multiply(x(b), w(b, 3, 1, 1, dtype="i32"))),
         "multiply add"),
    Case("half of tanh", algebraic, lambda b: b.multiply(c(b, 0.5), b.add(b.tanh(x(b)), c(b, 1.0))),
         "multiply sigmoid"),
    Case("half of scaled tanh", algebraic,
         lambda b: b.multiply(b.add(c(b, 1.0), b.tanh(b.multiply(c(b, 0.8), x(b)))), c(b, 0.5)), "multiply sigmoid"),
    Case("half of tanh, read twice", algebraic,
         lambda b: two(b.tanh(x(b)), lambda v: b.multiply(c(b, 0.5), b.add(v, c(b, 1.0)))), "tanh add multiply",
         "the sum or the tanh has other readers"),
    Case("third of tanh", algebraic, lambda b: b.multiply(c(b, 0.3), b.add(b.tanh(x(b)), c(b, 1.0))),
         "tanh add multiply"),
    Case("x-0", algebraic, lambda b: b.subtract(x(b), c(b, 0.0)), ""),
    Case("0-x stays", algebraic, lambda b: b.subtract(c(b, 0.0), x(b)), "subtract"),
    Case("x*1", algebraic, lambda b: b.multiply(x(b), c(b, np.ones((3, 1, 1), "f4"))), ""),
    Case("x*0 float", algebraic,
         lambda b: b.multiply(x(b), c(b, 0.0)), "multiply", "0 times NaN or infinity is NaN"),
    Case("x*0 int", algebraic, lambda b: b.multiply(x(b, "i32"), c(b, np.zeros((2, 3, 5, 6), "i4"))), ""),
    Case("product over nothing", algebraic,
         lambda b: b.matmul(x(b, shape=(2, 0)), c(b, np.zeros((0, 3), "f4"))), ""),
    Case("product of nothing", algebraic,
         lambda b: b.matmul(x(b, shape=(0, 2)), c(b, np.ones((2, 3), "f4"))), ""),
    Case("x/1", algebraic, lambda b: b.divide(x(b), c(b, 1.0)), ""),
    Case("1/x stays", algebraic, lambda b: b.divide(c(b, 1.0), x(b)), "divide"),
    Case("x^1", algebraic, lambda b: b.power(x(b), c(b, 1.0)), ""),
    Case("x^2", algebraic, lambda b: b.power(x(b), c(b, 2.0)), "square"),
    Case("x^.5 stays", algebraic, lambda b: b.power(x(b), c(b, 0.5)), "power"),
    Case("--x", algebraic, lambda b: b.negative(b.negative(x(b))), ""),
    Case("|-x|", algebraic, lambda b: b.abs(b.negative(x(b))), "abs"),
    Case("|-x| unsigned", algebraic, lambda b: b.abs(b.negative(x(b, "u8"))), "abs negative"),
    Case("identity", algebraic, lambda b: b.identity(x(b)), ""),
    Case("relu", algebraic, lambda b: b.relu(x(b)), "clamp"),
    Case("max(x,c)", algebraic, lambda b: b.maximum(c(b, 0.5), x(b)), "clamp"),
    Case("max int", algebraic, lambda b: b.maximum(x(b, "i64"), c(b, np.int64(1))), "maximum",
         "the bounds of a clamp are floats"),
    Case("clamp all", algebraic, lambda b: b.clamp(x(b), lower=-INF, upper=INF), ""),
    Case("clamp clamp", algebraic, lambda b: b.clamp(b.relu(x(b)), lower=-1, upper=6), "clamp"),
    Case("disjoint clamps", algebraic,
         lambda b: b.clamp(b.clamp(x(b), lower=-3, upper=-2), lower=1, upper=6), "clamp"),
    Case("fractional int clamps", algebraic,
         lambda b: b.clamp(b.clamp(x(b, "i32"), lower=0.2, upper=0.8), lower=0, upper=6), "clamp clamp",
         "an integer clamp has fractional bounds"),
    Case("convert to itself", algebraic, lambda b: b.convert(x(b), element="f32"), ""),
    Case("lossless converts", algebraic,
         lambda b: b.convert(b.convert(x(b), element="f64"), element="f32"), ""),
    Case("lossy converts", algebraic, lambda b: b.convert(b.convert(x(b), element="f16"), element="f32"),
         "convert convert", "f32 to f16 loses information"),
    Case("dropout", dropout_removal, lambda b: b.dropout(x(b)), ""),
    Case("reshapes", movement, lambda b: b.reshape(b.reshape(x(b), shape=(6, 30)), shape=(180,)), "reshape"),
    Case("bias behind the rows of a product", movement, lambda b: b.add(rows(b), w(b, 4, weight=False)),
         "matmul add reshape"),
    Case("clamp of a bias behind them", movement,
         lambda b: b.clamp(b.add(w(b, 1, 1, 4, weight=False), rows(b)), lower=0.0, upper=1.0),
         "reshape matmul add clamp reshape"),
    Case("residual behind them", movement, lambda b: b.add(rows(b), w(b, 2, 3, 4, weight=False)),
         "matmul reshape add"),
    Case("bias behind other columns", movement,
         lambda b: b.add(b.reshape(dense(b), shape=(4, 2)), w(b, 2, weight=False)), "matmul reshape add"),
    Case("rows read twice", movement, lambda b: two(rows(b), lambda v: b.add(v, w(b, 4, weight=False))),
         "matmul reshape add", "has other readers"),
    Case("bias behind rows that no product makes", movement,
         lambda b: b.add(b.reshape(x(b), shape=(6, 5, 6)), w(b, 6, weight=False)), "reshape add"),
    Case("reshape and back", movement,
         lambda b: b.reshape(b.reshape(x(b), shape=(6, 30)), shape=(2, 3, 5, 6)), ""),
    Case("transpose and back", movement,
         lambda b: b.transpose(b.transpose(x(b), order=(0, 2, 3, 1)), order=(0, 3, 1, 2)), ""),
    Case("transposes", movement,
         lambda b: b.transpose(b.transpose(x(b), order=(0, 2, 3, 1)), order=(1, 0, 2, 3)), "transpose"),
    Case("transpose of ones", movement,
         lambda b: b.transpose(x(b, shape=(2, 1, 5, 1)), order=(3, 0, 2, 1)), "reshape"),
    Case("whole slice", movement, lambda b: b.slice(x(b), begin=(0,) * 4, end=(2, 3, 5, 6)), ""),
    Case("reversal stays", movement,
         lambda b: b.slice(x(b), begin=(1, 2, 4, 5), end=(-1,) * 4, strides=(-1,) * 4), "slice"),
    Case("empty pad", movement, lambda b: pad(b, begin=(0,) * 4, end=(0,) * 4), ""),
    Case("no broadcast", movement, lambda b: b.broadcast(x(b), shape=(2, 3, 5, 6)), ""),
    Case("broadcasts", movement,
         lambda b: b.broadcast(b.broadcast(x(b), shape=(1, 2, 3, 5, 6)), shape=(4, 2, 3, 5, 6)), "broadcast"),
    Case("implicit broadcast", movement,
         lambda b: b.add(x(b), b.broadcast(b.reduce_sum(x(b), axes=(0, 1, 2)), shape=(5, 6))),
         "add reduce_sum"),
    Case("both broadcast", movement, lambda b: b.add(
        b.broadcast(x(b, shape=(1, 4)), shape=(3, 4)), b.broadcast(x(b), shape=(3, 4))), "add broadcast"),
    Case("sum of pads", movement, lambda b: b.add(
        padded(b, x(b), 0, 4), padded(b, b.negative(x(b)), 3, 1)), "negative concat pad"),
    Case("sum of pads behind reshapes", movement, lambda b: b.add(
        b.reshape(padded(b, b.negative(x(b)), 3, 0), shape=(12, 30)), b.reshape(padded(b, x(b), 0, 3), shape=(12, 30))),
        "negative concat reshape"),
    Case("sum of three pads", movement, lambda b: b.add(
        b.add(padded(b, x(b), 6, 0), padded(b, b.abs(x(b)), 3, 3)), padded(b, b.negative(x(b)), 0, 6)),
        "abs negative concat"),
    Case("pads that overlap", movement, lambda b: b.add(
        padded(b, x(b), 0, 2), padded(b, b.negative(x(b)), 2, 0)), "pad negative pad add"),
    Case("a pad that is read twice", movement, lambda b: (
        lambda wide: (b.add(padded(b, x(b), 0, 3), wide), b.exp(wide)))(padded(b, b.negative(x(b)), 3, 0)),
        "pad negative pad add exp"),
    Case("concat of one", movement, lambda b: b.concat(x(b), axis=-1), ""),
    Case("slices rejoined", movement, lambda b: b.concat(channels(b, 0, 1), channels(b, 1, 3), axis=1), ""),
    Case("slices swapped", movement, lambda b: b.concat(channels(b, 1, 3), channels(b, 0, 1), axis=1),
         "concat slice slice", "the slices are not adjacent"),
    Case("slices of a part", movement, lambda b: b.concat(
        channels(b, 0, 1), channels(b, 1, 2), channels(b, 1, 2), axis=1),
        "concat slice slice slice", "the slices are not adjacent"),
    Case("reduce ones", movement, lambda b: b.reduce_mean(x(b, shape=(2, 3, 1, 1)), axes=(2, -1)), "reshape"),
    Case("reduce none", movement, lambda b: b.reduce_max(x(b), axes=()), ""),
    Case("reduce and flatten", movement,
         lambda b: b.reshape(b.reduce_mean(x(b), axes=(-2, -1), keep_dims=True), shape=(2, 3)),
         "reduce_mean"),
    Case("reduce read twice", movement,
         lambda b: two(b.reduce_mean(x(b), axes=(2, 3)), lambda v: b.reshape(v, shape=(2, 3, 1, 1))),
         "reduce_mean reshape", "reduce_mean has other readers"),
    Case("global pool", global_pool, lambda b: b.avg_pool(x(b), kernel=(5, 6)), "reduce_mean"),
    Case("global pool, idle pads", global_pool,
         lambda b: b.avg_pool(x(b), kernel=(7, 8), pads_begin=(1, 1), pads_end=(1, 1), include_pad=False),
         "reduce_mean"),
    Case("global pool, counted pads", global_pool,
         lambda b: b.avg_pool(x(b), kernel=(7, 8), pads_begin=(1, 1), pads_end=(1, 1)), "avg_pool",
         "its padding counts in the divisor"),
    Case("one window of a part", global_pool,
         lambda b: b.avg_pool(x(b), kernel=(4, 6), strides=(9, 1)), "avg_pool"),
    Case("dead code", DeadCode, lambda b: (b.tanh(x(b)), b.exp(x(b)))[0], "tanh"),
    Case("cse", Cse, lambda b: b.multiply(b.add(x(b), c(b, 2.0)), b.add(c(b, 2.0), x(b))), "add multiply"),
    Case("cse attributes", Cse,
         lambda b: b.multiply(b.leaky_relu(x(b), slope=0.0), b.leaky_relu(x(b), slope=-0.0)),
         "leaky_relu leaky_relu multiply"),
    Case("constant folding", ConstantFolding, lambda b: b.add(x(b), b.exp(b.negative(c(b, 1.0)))), "add"),
    Case("constant folding is bounded", ConstantFolding,
         lambda b: b.reduce_sum(b.broadcast(c(b, 1.0), shape=(1 << 19,)), axes=(0,)), "broadcast reduce_sum",
         "the constant would grow by 2097148 bytes"),
]

SCATTERED = [
    Case("sums of scattered updates", scattered, lambda b: b.reduce_sum(spread(b), axes=(1,), keep_dims=True),
         "scatter_nd reshape"),
    Case("sums of scattered rows", scattered, lambda b: b.reduce_sum(spread(b, indexed=2), axes=(0,)), "scatter_nd"),
    Case("sums along axes without indices", scattered, lambda b: b.reduce_sum(spread(b, indexed=2), axes=(1, 2)),
         "scatter_nd reduce_sum"),
    Case("sums along all axes", scattered, lambda b: b.reduce_sum(spread(b, indexed=2), axes=(0, 1)),
         "scatter_nd reduce_sum"),
    Case("sums of what was there", scattered, lambda b: b.reduce_sum(spread(b, base=c(b, 1.0)), axes=(1,)),
         "scatter_nd reduce_sum"),
    Case("sums of replaced elements", scattered, lambda b: b.reduce_sum(spread(b, reduction="none"), axes=(1,)),
         "scatter_nd reduce_sum"),
    Case("scattered and added", scattered, lambda b: b.add(b.exp(whole(b)), spread(b)), "exp scatter_nd"),
    Case("scattered and added to a row", scattered, lambda b: b.add(w(b, 1, 6, 2, weight=False), spread(b)),
         "scatter_nd add"),
    Case("scattered, read twice", scattered, lambda b: two(spread(b), lambda v: b.add(whole(b), v)), "scatter_nd add"),
    Case("scattered less a tensor", scattered, lambda b: b.subtract(spread(b), b.exp(whole(b))),
         "exp negative scatter_nd"),
    Case("scattered less a product", scattered,
         lambda b: b.subtract(spread(b), b.multiply(w(b, 4, 1, 1, weight=False), whole(b))),
         "negative multiply scatter_nd"),
    Case("a tensor less what is scattered", scattered, lambda b: b.subtract(whole(b), spread(b)),
         "scatter_nd subtract"),
]

FOLD = [
    Case("one hot", one_hot_product, one_hot, "reshape convert add gather"),
    Case("one hot, transposed weights", one_hot_product, lambda b: one_hot(b, transpose_b=True),
         "reshape convert add gather"),
    Case("one hot from one", one_hot_product, lambda b: one_hot(b, 1), "equal convert reshape matmul"),
    Case("one hot, weights of a run", one_hot_product, lambda b: one_hot(b, weight=False),
         "equal convert reshape matmul", "the weights may differ with every run"),
    Case("not one hot", one_hot_product, lambda b: dense(b), "matmul"),
    Case("silu", swish_fusion, lambda b: silu(b), "silu"),
    Case("silu, the sigmoid first", swish_fusion, lambda b: silu(b, turned=True), "silu"),
    Case("silu read twice", swish_fusion, lambda b: two(b.sigmoid(x(b)), lambda v: b.multiply(x(b), v)),
         "sigmoid multiply", "has other readers"),
    Case("gelu", swish_fusion, lambda b: gelu(b), "gelu"),
    Case("gelu, half first", swish_fusion, lambda b: gelu(b, half="first"), "gelu"),
    Case("gelu, half of the sum", swish_fusion, lambda b: gelu(b, half="sum"), "gelu"),
    Case("gelu, multiplied inside", swish_fusion, lambda b: gelu(b, inside="multiply"), "gelu"),
    Case("gelu of two", swish_fusion, lambda b: gelu(b, root=2.0), "divide erf add multiply multiply"),
    Case("gelu of another value", swish_fusion, lambda b: gelu(b, other=True), "divide erf add multiply multiply"),
    Case("gelu read inside", swish_fusion, lambda b: two(
        b.erf(b.divide(x(b), c(b, np.float32(2**0.5)))),
        lambda v: b.multiply(b.multiply(x(b), b.add(v, c(b, np.float32(1)))), c(b, np.float32(0.5)))),
         "divide erf add multiply multiply", "has other readers"),
    Case("a logarithm a row", pick_fusion, lambda b: picked(b), "log_softmax_pick"),
    Case("axes from the end", pick_fusion, lambda b: picked(b, axis=-1, own=-1), "log_softmax_pick"),
    Case("logarithms read twice", pick_fusion, lambda b: two(b.log_softmax(x(b, shape=(4, 6))), lambda v: picked(b, v)),
         "log_softmax gather_elements", "has other readers"),
    Case("logarithms of columns", pick_fusion, lambda b: picked(b, axis=0), "log_softmax gather_elements",
         "its rows do not lie along the last axis"),
    Case("elements of columns", pick_fusion, lambda b: picked(b, own=0, count=(1, 6)), "log_softmax gather_elements",
         "its rows do not lie along the last axis"),
    Case("two logarithms a row", pick_fusion, lambda b: picked(b, count=(4, 2)), "log_softmax gather_elements",
         "it is not of one float32 a row"),
    Case("logarithms of float64", pick_fusion, lambda b: picked(b, b.log_softmax(x(b, "f64", (4, 6)))),
         "log_softmax gather_elements", "it is not of one float32 a row"),
    Case("softmax at a label", pick_fusion, lambda b: picked(b, b.softmax(x(b, shape=(4, 6)))),
         "softmax gather_elements"),
    Case("hard swish", swish_fusion, swish, "hard_swish"),
    Case("hard swish without slope", swish_fusion, lambda b: swish(b, None), "hard_swish"),
    Case("hard swish without offset", swish_fusion, lambda b: swish(b, 0.2, None, upper=1.0), "hard_swish"),
    Case("hard swish, scalars behind", swish_fusion,
         lambda b: b.add(b.multiply(c(b, 0.5), b.divide(swish(b), c(b, 6.0))), c(b, [0.25], "f32")), "hard_swish"),
    Case("hard swish read twice", swish_fusion,
         lambda b: two(swish(b), lambda v: b.add(b.divide(v, c(b, 6.0)), c(b, 1.0))), "hard_swish divide add",
         "hard_swish has other readers"),
    Case("hard swish divides", swish_fusion, lambda b: b.divide(c(b, 6.0), b.add(swish(b), c(b, 9.0))),
         "hard_swish divide"),
    Case("hard swish of channels", swish_fusion,
         lambda b: b.add(swish(b), w(b, 3, 1, 1, weight=False)), "hard_swish add"),
    Case("another gate", swish_fusion, lambda b: swish(b, lower=-1.0), "multiply add clamp multiply",
         "the clamp is not from 0 to a finite bound"),
    Case("gate of another value", swish_fusion,
         lambda b: b.multiply(b.tanh(x(b)), b.clamp(x(b), lower=0.0, upper=1.0)), "tanh clamp multiply"),
    Case("gate read twice", swish_fusion,
         lambda b: two(b.clamp(x(b), lower=0.0, upper=1.0), lambda v: b.multiply(x(b), v)), "clamp multiply",
         "clamp has other readers"),
    Case("shuffle", pixel_shuffle, lambda b: upward(b, lower=0.0), "convolution+bias reshape transpose reshape"),
    Case("shuffle without bias", pixel_shuffle, lambda b: upward(b, 1, 3, 2, biased=False),
         "convolution reshape transpose reshape"),
    Case("shuffle by 2 and 1", pixel_shuffle, lambda b: upward(b, 1, 1, 0, steps=(2, 1)), "convolution+bias",
         "its windows overlap, or it pads"),
    Case("shuffle, windows overlap", pixel_shuffle, lambda b: upward(b, kernel=3, steps=(2, 2)), "convolution+bias",
         "its windows overlap, or it pads"),
    Case("shuffle, cut border", pixel_shuffle, lambda b: upward(b, border=0), "convolution+bias",
         "its windows overlap, or it pads"),
    Case("shuffle, strides", pixel_shuffle, lambda b: upward(b, strides=(2, 2)), "convolution+bias",
         "it has groups, strides or dilations"),
    Case("shuffle of many channels", pixel_shuffle, lambda b: upward(b, 5), "convolution+bias",
         "5 output channels fill blocks by themselves"),
    Case("shuffle, weights of a run", pixel_shuffle, lambda b: upward(b, weight=False), "convolution+bias",
         "the weights may differ with every run"),
    Case("pad conv", pad_fusion,
         lambda b: conv(b, pad(b), pads_begin=(0, 1), pads_end=(1, 0)), "convolution"),
    Case("pad read twice", pad_fusion, lambda b: two(pad(b), lambda v: conv(b, v)), "convolution pad"),
    Case("pad 1 conv", pad_fusion,
         lambda b: conv(b, pad(b, 1.0)), "convolution pad", "the padding value is 1.0, not 0"),
    Case("edge pad", pad_fusion,
         lambda b: conv(b, pad(b, mode="edge")), "convolution pad", "the pad's mode is edge"),
    Case("channel pad", pad_fusion, lambda b: conv(b, pad(b, begin=(0, 1, 0, 0))), "convolution pad",
         "the pad is on the batch or channel axis"),
    Case("pad avg", pad_fusion, lambda b: b.avg_pool(pad(b), kernel=(3, 3), include_pad=False), "avg_pool"),
    Case("pad avg, own pads", pad_fusion,
         lambda b: b.avg_pool(pad(b), kernel=(3, 3), pads_begin=(1, 1), include_pad=False), "avg_pool pad",
         "the pool's own padding does not count, the pad's does"),
    Case("pad max", pad_fusion, lambda b: b.max_pool(pad(b, -INF), kernel=(3, 3)), "max_pool"),
    Case("pad 0 max", pad_fusion, lambda b: b.max_pool(pad(b), kernel=(3, 3)), "max_pool pad",
         "the padding value 0.0 may be the greatest in a window"),
    Case("pad 0 max of relu", pad_fusion,
         lambda b: b.max_pool(pad(b, data=b.clamp(x(b), lower=0, upper=INF)), kernel=(3, 3)),
         "clamp max_pool"),
    Case("pad max, idle window", pad_fusion,
         lambda b: b.max_pool(pad(b, -INF), kernel=(2, 2)), "max_pool pad",
         "each to overlap"),
    Case("bn", batch_norm_folding, lambda b: bn(b, x(b)), "scale_shift"),
    Case("bn of run-time vectors", batch_norm_folding, lambda b: bn(b, x(b), weight=False),
         "batch_norm_factors scale_shift"),
    Case("conv bn", batch_norm_folding, lambda b: bn(b, conv(b)), "convolution+bias"),
    Case("conv bn f16", batch_norm_folding, lambda b: bn(b, conv(b, dtype="f16")), "convolution+bias"),
    Case("conv bn bn", batch_norm_folding, lambda b: bn(b, bn(b, conv_bias(b))), "convolution+bias"),
    Case("bn bn", batch_norm_folding, lambda b: bn(b, bn(b, x(b))), "scale_shift"),
    Case("dense bn", batch_norm_folding, lambda b: bn(b, dense(b)), "matmul+bias"),
    Case("dense bn, not transposed", batch_norm_folding,
         lambda b: bn(b, dense(b, transposed=False)), "matmul+bias"),
    Case("rank 3 product", batch_norm_folding,
         lambda b: bn(b, dense(b, shape=(2, 3, 7))), "matmul scale_shift",
         "channels are not the last axis of the product"),
    Case("conv bn, two readers", batch_norm_folding, lambda b: two(conv(b), lambda v: bn(b, v)),
         "convolution scale_shift", "convolution has other readers"),
    Case("conv bn, run-time weights", batch_norm_folding, lambda b: bn(b, conv(b, weight=False)),
         "convolution scale_shift", "the weights of convolution may differ with every run"),
    Case("clamped conv bn", batch_norm_folding,
         lambda b: bn(b, conv_bias(b, lower=0)), "convolution+bias scale_shift",
         "convolution clamps first"),
    Case("sum bn", batch_norm_folding, lambda b: bn(b, conv_bias_add(b)), "convolution+bias+residual scale_shift",
         "the residual of convolution would have to be scaled too"),
    Case("conv add bias", affine_folding, lambda b: b.add(w(b, 3, 1, 1), conv(b, x(b))), "convolution+bias"),
    Case("conv add number", affine_folding, lambda b: b.add(conv(b), c(b, 2.0)), "convolution+bias"),
    Case("conv add biases", affine_folding,
         lambda b: b.add(b.add(conv(b), w(b, 1, 3, 1, 1)), w(b, 3, 1, 1)), "convolution+bias"),
    Case("dense add bias", affine_folding, lambda b: b.add(dense(b), w(b, 4)), "matmul+bias"),
    Case("batched add bias", affine_folding,
         lambda b: b.add(dense(b, shape=(2, 3, 7)), w(b, 1, 1, 4)), "matmul+bias"),
    Case("row bias", affine_folding, lambda b: b.add(dense(b), w(b, 2, 1)), "add matmul"),
    Case("conv - bias", affine_folding, lambda b: b.subtract(conv(b), w(b, 3, 1, 1)), "convolution+bias"),
    Case("bias - conv stays", affine_folding,
         lambda b: b.subtract(w(b, 3, 1, 1), conv(b, x(b))), "convolution subtract"),
    Case("conv * s", affine_folding, lambda b: b.multiply(conv(b), w(b, 3, 1, 1)), "convolution"),
    Case("conv / s", affine_folding,
         lambda b: b.divide(conv_bias(b), w(b, 3, 1, 1, kind="var")), "convolution+bias"),
    Case("dense * s", affine_folding, lambda b: b.multiply(dense(b), w(b, 4)), "matmul"),
    Case("conv * run-time s", affine_folding, lambda b: b.multiply(conv(b), w(b, 3, 1, 1, weight=False)),
         "convolution multiply"),
    Case("x*s+t", affine_folding, lambda b: b.add(b.multiply(x(b), w(b, 3, 1, 1)), c(b, 1.0)), "scale_shift"),
    Case("x*2+1 stays", affine_folding,
         lambda b: b.add(b.multiply(x(b), c(b, 2.0)), c(b, 1.0)), "add multiply"),
    Case("bn * s", affine_folding, lambda b: b.multiply(
        b.scale_shift(x(b), w(b, 3), w(b, 3)), w(b, 3, 1, 1)), "scale_shift"),
]

FUSE = [
    Case("conv + x", residual_fusion, lambda b: b.add(x(b), conv(b)), "convolution+bias+residual"),
    Case("conv + conv", residual_fusion,
         lambda b: b.add(conv(b), conv(b)), "convolution convolution+bias+residual"),
    Case("conv + itself", residual_fusion, lambda b: (lambda v: b.add(v, v))(conv(b)), "add convolution",
         "convolution has other readers"),
    Case("conv + f(conv)", residual_fusion,
         lambda b: (lambda v: b.add(v, b.tanh(v)))(conv(b)), "add convolution tanh",
         "convolution has other readers"),
    Case("conv result + x", residual_fusion,
         lambda b: two(conv(b), lambda v: b.add(v, x(b))), "add convolution",
         "convolution has other readers"),
    Case("conv + row", residual_fusion,
         lambda b: b.add(conv(b), b.reduce_sum(x(b), axes=(3,), keep_dims=True)),
         "add convolution reduce_sum", "f32[2,3,5,1] broadcasts to f32[2,3,5,6]"),
    Case("relu conv + x", residual_fusion,
         lambda b: b.add(conv_bias(b, lower=0), x(b)), "add convolution+bias",
         "convolution clamps first"),
    Case("conv relu", clamp_fusion, lambda b: b.clamp(conv(b), lower=0, upper=INF), "convolution+bias"),
    Case("sum relu6", clamp_fusion,
         lambda b: b.clamp(conv_bias_add(b), lower=0, upper=6), "convolution+bias+residual"),
    Case("bounds merge", clamp_fusion,
         lambda b: b.clamp(conv_bias(b, lower=0), lower=-1, upper=6), "convolution+bias"),
    Case("dense relu", clamp_fusion, lambda b: b.clamp(dense(b), lower=0, upper=INF), "matmul+bias"),
    Case("scale_shift relu", clamp_fusion,
         lambda b: b.clamp(b.scale_shift(x(b), w(b, 3), w(b, 3)), lower=0, upper=INF), "scale_shift"),
    Case("conv pool relu", clamp_fusion,
         lambda b: b.clamp(b.max_pool(conv(b), kernel=(2, 2)), lower=0, upper=INF),
         "convolution+bias max_pool"),
    Case("conv read twice, relu", clamp_fusion,
         lambda b: two(conv(b), lambda v: b.clamp(v, lower=0, upper=INF)),
         "clamp convolution", "convolution has other readers"),
    Case("int conv relu", clamp_fusion,
         lambda b: b.clamp(conv(b, dtype="i32"), lower=0, upper=INF), "clamp convolution",
         "integers"),
    Case("default bias", default_bias, lambda b: conv(b), "convolution+bias"),
    Case("default bias, integers", default_bias, lambda b: conv(b, dtype="i32"), "convolution", "integers"),
    Case("pre-activation", fuse_scale_shift, lambda b: two(
        conv_bias_add(b), lambda v: b.scale_shift(v, w(b, 3), w(b, 3), lower=0)),
        "convolution+bias+residual+scale+shift"),
    Case("pre-activation, read before", fuse_scale_shift, lambda b: (lambda v: (
        b.tanh(v), b.scale_shift(v, b.exp(w(b, 3)), w(b, 3))))(conv_bias_add(b)),
        "convolution+bias+residual+scale+shift tanh"),
    Case("pre-activation twice", fuse_scale_shift, lambda b: (lambda v: (
        b.scale_shift(v, w(b, 3), w(b, 3)), b.scale_shift(v, w(b, 3), w(b, 3))))(conv_bias_add(b)),
        "convolution+bias+residual+scale+shift scale_shift", "the sum has a scale_shift already"),
    Case("run-time scale", fuse_scale_shift,
         lambda b: b.scale_shift(conv_bias_add(b), w(b, 3, weight=False), w(b, 3)),
         "convolution+bias+residual scale_shift", "scale or shift may differ with every run"),
]


@pytest.mark.parametrize("case", SIMPLIFY + SCATTERED + FOLD + FUSE, ids=lambda case: case.name)
def test_rewrite(case: Case):
    b = Builder()
    found = case.build(b)
    graph = b.results(*(found if isinstance(found, tuple) else (found,)))
    reports = []
    after = check(graph, lambda g: reports.append(run_pass(g, case.make())))
    if case.make is not Cse:
        # A fusion leaves nothing unfused behind, dead code included.
        assert after.remove_dead() == 0
    assert _run_time_ops(after) == sorted(case.left.split())
    explained = reports[0].explain()
    assert case.miss in explained, explained


def _run_time_ops(graph) -> list[str]:
    """The ops that run with every call. A graph without parameters tests folding: all of it counts."""
    run_time = {p for p in graph.parameters if not p.is_weight}
    names = []
    for node in graph.nodes:
        everything = not graph.parameters and node.op.name != "constant"
        if everything or any(v in run_time for v in node.inputs):
            run_time.update(node.outputs)
            names.append(form(node))
    return sorted(names)


def test_disjoint_bounds():
    b = Builder()
    graph = b.results(b.clamp(b.clamp(x(b), lower=-3, upper=-2), lower=1, upper=6))
    run_pass(graph, algebraic())
    assert graph.nodes[0].attrs == {"lower": 1.0, "upper": 1.0}


def test_later_convolution_hosts_the_addition():
    b = Builder()
    b.origin = "early"
    early = conv(b)
    b.origin = "late"
    late = conv(b)
    b.origin = "sum"
    graph = b.results(b.add(late, early))
    run_pass(graph, residual_fusion())
    host = graph.results[0].node
    assert host is not None and host.origin == "late + sum" and host.inputs[3].node.origin == "early"


def test_constant_weights_fold_away():
    b = Builder()
    weights = b.constant(np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3, 1, 1))
    vectors = [b.constant(np.array([1, 2, 0.5], np.float32)) for _ in range(4)]
    graph = b.results(b.batch_norm(b.convolution(x(b), weights), *vectors))
    run_pass(graph, batch_norm_folding(), ConstantFolding(), DeadCode())
    assert ops(graph) == {"constant": 2, "convolution+bias": 1}
