"""Products, convolutions, deformable ones, and `linalg`'s operators on the matrices in the last two axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs
from ngraph_mxnet.frontends.mxnet.rules.registry import ANY, bias_of, image_shape, normal_axis, per_axis, positive, rule
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ops import compositions as composed
from ngraph_mxnet.ops.compositions import (
    channels_first,
    channels_last,
    deformable_convolution,
    moved_axis,
    reshaped,
    times,
    transposed_convolution,
    triangle,
    with_bias,
)


@rule("FullyConnected", operands=(2, 3), parameters=[1, 2])
def fully_connected(b: Builder, attrs: Attrs, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x W^T + bias. `flatten`: all axes but 0 are one; else the product is over the last, of any rank."""
    return dense(b, x, weight, bias_of(bias, attrs.bool("no_bias", False)), attrs)


def dense(b: Builder, x: Value, weight: Value, bias: Value | None, attrs: Attrs) -> Value:
    """Build the dense layer that the attributes of a FullyConnected ask for."""
    units, flatten = attrs.int("num_hidden"), attrs.bool("flatten", True)
    if weight.rank != 2 or weight.shape[0] != units:
        raise UnsupportedError(f"num_hidden={units} does not fit the weight {weight.type}")
    leading = x.shape[:1] if flatten else x.shape[:-1]
    out = b.matmul(reshaped(b, x, (prod(leading), weight.shape[1])), weight, transpose_b=True)
    return reshaped(b, out if bias is None else out + bias, (*leading, units))


def contraction(b: Builder, left: Value, right: Value, inner: int) -> Value:
    """The sum of products over the last `inner` axes of the left and the first ones of the right.

    The result has the other axes of the left, then those of the right.
    """
    if left.shape[left.rank - inner:] != right.shape[:inner]:
        raise UnsupportedError(f"{left.type} and {right.type} do not meet in {inner} axes")
    rows, columns, depth = left.shape[:left.rank - inner], right.shape[inner:], prod(right.shape[:inner])
    out = b.matmul(reshaped(b, left, (prod(rows), depth)), reshaped(b, right, (depth, prod(columns))))
    return reshaped(b, out, (*rows, *columns))


@rule("dot", operands=2, ignored=["forward_stype"])
def dot(b: Builder, attrs: Attrs, left: Value, right: Value) -> Value:
    """The sum of products over the last axis of the left and the first of the right, of any rank.

    If transposed, it is the first axis of the left, and the last of the right. Two vectors give shape (1,).
    """
    transpose_a = attrs.bool("transpose_a", False) and left.rank > 1
    transpose_b = attrs.bool("transpose_b", False) and right.rank > 1
    a_free = left.shape[1:] if transpose_a else left.shape[:-1]
    b_free = right.shape[:-1] if transpose_b else right.shape[1:]
    inner = left.shape[0] if transpose_a else left.shape[-1]
    if inner != (right.shape[-1] if transpose_b else right.shape[0]):
        raise UnsupportedError(f"{left.type} and {right.type} do not meet")
    out = b.matmul(reshaped(b, left, (inner, prod(a_free)) if transpose_a else (prod(a_free), inner)),
                   reshaped(b, right, (prod(b_free), inner) if transpose_b else (inner, prod(b_free))),
                   transpose_a=transpose_a, transpose_b=transpose_b)
    return reshaped(b, out, (*a_free, *b_free) or (1,))


@rule("batch_dot", operands=2, ignored=["forward_stype"])
def batch_dot(b: Builder, attrs: Attrs, left: Value, right: Value) -> Value:
    """A matrix product for each entry of the leading axes, which agree."""
    if left.shape[:-2] != right.shape[:-2]:
        raise UnsupportedError(f"leading axes differ: {left.type} and {right.type}")
    return b.matmul(left, right, transpose_a=attrs.bool("transpose_a", False),
                    transpose_b=attrs.bool("transpose_b", False))


@rule("_npi_matmul", operands=2)
def matmul(b: Builder, attrs: Attrs, left: Value, right: Value) -> Value:
    """NumPy's: leading axes broadcast, a vector is a row at the left and a column at the right."""
    a = left if left.rank > 1 else b.reshape(left, shape=(1, left.size))
    c = right if right.rank > 1 else b.reshape(right, shape=(right.size, 1))
    out = b.matmul(a, c)
    shape = list(out.shape)
    if right.rank == 1:
        del shape[-1]
    if left.rank == 1:
        del shape[-2 if right.rank > 1 else -1]
    return reshaped(b, out, shape)


@rule("_np_dot", operands=2)
def np_dot(b: Builder, attrs: Attrs, left: Value, right: Value) -> Value:
    """The sum of products over the last axis of the left and the last but one of the right; a single number scales."""
    if not left.shape or not right.shape:
        return left * right
    meets = max(right.rank - 2, 0)
    order = [meets, *(axis for axis in range(right.rank) if axis != meets)]
    return contraction(b, left, b.transpose(right, order=order), 1)


def tensor_product(b: Builder, left: Value, right: Value, left_axes: Sequence[int], right_axes: Sequence[int]) -> Value:
    """The sum of products over pairs of axes; what is left of both follows each other."""
    summed = [normal_axis(axis, left.rank) for axis in left_axes]
    others = [normal_axis(axis, right.rank) for axis in right_axes]
    if len(summed) != len(others) or len({*summed}) != len(summed) or len({*others}) != len(others):
        raise UnsupportedError(f"axes {tuple(left_axes)} and {tuple(right_axes)} do not pair")
    rows = [axis for axis in range(left.rank) if axis not in summed]
    columns = [axis for axis in range(right.rank) if axis not in others]
    a, c = b.transpose(left, order=rows + summed), b.transpose(right, order=others + columns)
    return contraction(b, a, c, len(summed))


@rule("_npi_tensordot", operands=2)
def tensordot(b: Builder, attrs: Attrs, left: Value, right: Value) -> Value:
    """The sum of products over pairs of axes."""
    return tensor_product(b, left, right, attrs.ints("a_axes_summed"), attrs.ints("b_axes_summed"))


@rule("_npi_tensordot_int_axes", operands=2)
def tensordot_by_number(b: Builder, attrs: Attrs, left: Value, right: Value) -> Value:
    """The sum of products over the last `axes` axes of the left and the first ones of the right."""
    count = attrs.int("axes")
    if not 0 <= count <= min(left.rank, right.rank):
        raise UnsupportedError(f"axes={count} of {left.type} and {right.type}")
    return contraction(b, left, right, count)


CHANNELS_FIRST, CHANNELS_LAST = ("NCW", "NCHW", "NCDHW"), ("NWC", "NHWC", "NDHWC")

Ints = tuple[int, ...]


IGNORED = ("workspace", "cudnn_tune", "cudnn_off")


@rule("Convolution", "Convolution_v1", operands=(2, 3), parameters=[1, 2], ignored=IGNORED)
def convolution(b: Builder, attrs: Attrs, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """One to three spatial axes, with strides, dilation, symmetric padding, groups and bias; any layout.

    Channels last, the weight's too, is what GPUs train; MXNet itself raises on a CPU.
    """
    given = bias_of(bias, attrs.bool("no_bias", False))
    if attrs.choice("layout", None, (*CHANNELS_FIRST, *CHANNELS_LAST)) not in CHANNELS_LAST:
        return with_bias(b, _convolved(b, x, weight, attrs), given)
    sums = _convolved(b, channels_first(b, x), channels_first(b, weight), attrs)
    return channels_last(b, with_bias(b, sums, given))


def convolved(b: Builder, x: Value, weight: Value, attrs: Attrs) -> Value:
    """The sums of products that the attributes of a Convolution ask for, channels first, without its bias."""
    attrs.choice("layout", None, CHANNELS_FIRST)
    return _convolved(b, x, weight, attrs)


def _convolved(b: Builder, x: Value, weight: Value, attrs: Attrs) -> Value:
    kernel = attrs.ints("kernel")
    count = len(kernel)
    filters, pads = attrs.int("num_filter"), per_axis(attrs.ints("pad", ()), count, 0, "pad")
    if weight.shape[2:] != kernel or weight.shape[:1] != (filters,):
        raise UnsupportedError(f"kernel={kernel}, num_filter={filters} do not fit the weight {weight.type}")
    return b.convolution(x, weight, strides=per_axis(attrs.ints("stride", ()), count, 1, "stride"),
                         dilations=per_axis(attrs.ints("dilate", ()), count, 1, "dilate"),
                         pads_begin=pads, pads_end=pads, groups=attrs.int("num_group", 1))


@rule("Deconvolution", operands=(2, 3), parameters=[1, 2], ignored=IGNORED)
def deconvolution(b: Builder, attrs: Attrs, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """The transpose of a convolution over one to three spatial axes, with all parameters.

    Channels last: MXNet itself raises on a CPU.
    """
    attrs.choice("layout", None, CHANNELS_FIRST)
    kernel, groups = attrs.ints("kernel"), attrs.int("num_group", 1)
    count = len(kernel)
    if x.rank != count + 2 or weight.shape[2:] != kernel or weight.shape[0] != x.shape[1]:
        raise UnsupportedError(f"kernel={kernel} does not fit the data {x.type} and the weight {weight.type}")
    if groups < 1 or x.shape[1] % groups or weight.shape[1] * groups != attrs.int("num_filter"):
        raise UnsupportedError(f"num_group={groups} and num_filter={attrs.int('num_filter')} do not fit the weight "
                               f"{weight.type}")
    stride = tuple(positive(step, "stride") for step in per_axis(attrs.ints("stride", ()), count, 1, "stride"))
    dilate = tuple(positive(step, "dilate") for step in per_axis(attrs.ints("dilate", ()), count, 1, "dilate"))
    if count == 3 and prod(dilate) > 1:
        raise UnsupportedError(f"dilate={dilate}: MXNet takes no dilation in three dimensions")
    reach = tuple(step * (size - 1) + 1 for step, size in zip(dilate, kernel, strict=True))
    pad, adjust = _padding(attrs, x.shape[2:], stride, reach)
    out = transposed_convolution(b, x, weight, groups=groups, stride=stride, dilate=dilate, pad=pad, adjust=adjust)
    return with_bias(b, out, bias_of(bias, attrs.bool("no_bias", True)))


def _padding(attrs: Attrs, sizes: Ints, stride: Ints, reach: Ints) -> tuple[Ints, Ints]:
    """Return the sizes that are cut off at each side, and those that are added at the end. `target_shape` decides both
    if it is set.

    (DeconvolutionParam::InferPad in MXNet's src/operator/nn/deconvolution-inl.h.)
    """
    target = attrs.ints("target_shape", ())
    pad, adjust = (per_axis(attrs.ints(name, ()), len(sizes), 0, name) for name in ("pad", "adj"))
    if not any(target):
        if any(extra >= step for extra, step in zip(adjust, stride, strict=True)):
            raise UnsupportedError(f"adj={adjust} is not below stride={stride}")
        return pad, adjust
    if len(target) != len(sizes):
        raise UnsupportedError(f"target_shape={target} for {len(sizes)} spatial axes")
    pads, extras = [], []
    for size, step, span, wanted in zip(sizes, stride, reach, target, strict=True):
        surplus = step * (size - 1) + span - wanted
        if surplus < 0:
            raise UnsupportedError(f"target_shape={target} is larger than what the data reaches")
        pads.append((surplus + 1) // 2)
        extras.append(surplus % 2)
    if tuple(pads) != pad:  # there MXNet's CPU kernel raises
        raise UnsupportedError(f"target_shape={target} asks for pad={tuple(pads)}, but pad={pad}")
    return pad, tuple(extras)


@rule("_contrib_ModulatedDeformableConvolution", operands=(4, 5), parameters=[3, 4],
      ignored=["workspace", "im2col_step"])
def modulated_deformable_convolution(b: Builder, attrs: Attrs, x: Value, offset: Value, mask: Value, weight: Value,
                                     bias: Value | None = None) -> Value:
    """See `compositions.deformable`."""
    channels = image_shape(x)[1]
    attrs.choice("layout", None, ("NCHW",))
    kernel, filters, groups = attrs.ints("kernel"), attrs.int("num_filter"), attrs.int("num_group", 1)
    if weight.shape != (filters, channels // groups, *kernel) or len(kernel) != 2:
        raise UnsupportedError(f"kernel={kernel}, num_filter={filters} do not fit the weight {weight.type}")
    stride, dilate, pad = (per_axis(attrs.ints(name, ()), 2, fill, name)
                           for name, fill in (("stride", 1), ("dilate", 1), ("pad", 0)))
    out = deformable_convolution(b, x, offset, mask, weight, groups=groups,
                                 offset_groups=attrs.int("num_deformable_group", 1), stride=stride, dilate=dilate,
                                 pad=pad)
    return with_bias(b, out, bias_of(bias, attrs.bool("no_bias", False)))


def _product(b: Builder, attrs: Attrs, *inputs: Value) -> tuple[Value, int]:
    """alpha op(A) op(B), whose rows are in `axis` (moved to the last but one), and that axis."""
    rank = inputs[0].rank
    if rank < 2 or any(x.rank != rank for x in inputs):
        raise UnsupportedError(f"found {', '.join(str(x.type) for x in inputs)}, expected matrices of one rank")
    axis = normal_axis(attrs.int("axis", -2), rank)
    if axis == rank - 1:
        raise UnsupportedError(f"axis={axis}: the rows of {inputs[0].type} can't be its last axis")
    left, right = (_moved_rows(b, x, axis, rank - 2) for x in inputs[:2])
    if left.shape[:-2] != right.shape[:-2]:
        raise UnsupportedError(f"leading axes differ: {left.type} and {right.type}")
    out = b.matmul(left, right, transpose_a=attrs.bool("transpose_a", False),
                   transpose_b=attrs.bool("transpose_b", False))
    return times(out, attrs.float("alpha", 1.0)), axis


def _moved_rows(b: Builder, x: Value, source: int, destination: int) -> Value:
    return x if source == destination else moved_axis(b, x, source, destination)


@rule("_linalg_gemm2", operands=2)
def gemm2(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """alpha op(A) op(B)."""
    out, axis = _product(b, attrs, *inputs)
    return _moved_rows(b, out, out.rank - 2, axis)


@rule("_linalg_gemm", operands=3)
def gemm(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """alpha op(A) op(B) + beta C."""
    out, axis = _product(b, attrs, *inputs)
    addend = times(_moved_rows(b, inputs[2], axis, out.rank - 2), attrs.float("beta", 1.0))
    if addend.shape != out.shape:
        raise UnsupportedError(f"found C of {inputs[2].type} for a product of {out.type}")
    return _moved_rows(b, out + addend, out.rank - 2, axis)


@rule("_linalg_syrk", operands=1)
def syrk(b: Builder, attrs: Attrs, x: Value) -> Value:
    """alpha A A^T, or alpha A^T A."""
    transpose = attrs.bool("transpose", False)
    out = b.matmul(x, x, transpose_a=transpose, transpose_b=not transpose)
    return times(out, attrs.float("alpha", 1.0))


@rule("_linalg_trmm", operands=2)
def trmm(b: Builder, attrs: Attrs, a: Value, x: Value) -> Value:
    """alpha op(A) B, or alpha B op(A), of A's lower or upper triangle."""
    if a.rank < 2 or a.shape[:-2] != x.shape[:-2]:
        raise UnsupportedError(f"leading axes differ: {a.type} and {x.type}")
    a = triangle(b, a, 0, lower=attrs.bool("lower", True))
    transpose = attrs.bool("transpose", False)
    if attrs.bool("rightside", False):
        out = b.matmul(x, a, transpose_b=transpose)
    else:
        out = b.matmul(a, x, transpose_a=transpose)
    return times(out, attrs.float("alpha", 1.0))


@rule("khatri_rao", operands=(1, ANY), ignored=["num_args"])
def khatri_rao(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """The Kronecker products of the columns of matrices."""
    out = inputs[0]
    for x in inputs[1:]:
        if out.rank != 2 or x.rank != 2 or out.shape[1] != x.shape[1]:
            raise UnsupportedError(f"found {out.type} and {x.type}, expected matrices with the same number of columns")
        columns = x.shape[1]
        pairs = b.reshape(out, shape=(out.shape[0], 1, columns)) * b.reshape(x, shape=(1, *x.shape))
        out = b.reshape(pairs, shape=(out.shape[0] * x.shape[0], columns))
    return out if len(inputs) > 1 else b.identity(out)


@rule("_npi_einsum", ignored=["num_args", "optimize"], operands=(1, ANY))
def einsum(b: Builder, attrs: Attrs, *inputs: Value) -> Value:
    """From left to right, two operands at a time. Stay with MXNet: an axis named twice in one operand, and `...`."""
    subscripts = attrs.text("subscripts").replace(" ", "")
    if "." in subscripts:
        raise UnsupportedError(f"subscripts={subscripts}: an ellipsis")
    if any(len({*axes}) != len(axes) for axes in subscripts.partition("->")[0].split(",")):
        raise UnsupportedError(f"subscripts={subscripts}: an axis is named twice in one operand")
    return composed.einsum(b, inputs, subscripts)
