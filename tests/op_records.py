"""Records of each op: which operands and attributes to try, and how exactly backends must agree.

To cover a new op, add a row. The suites in `tests/backend` run every row on every backend.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ngraph_mxnet.ir import TensorType, element_type

Draw = Callable[[st.SearchStrategy[Any]], Any]
Case = tuple[list[TensorType], dict[str, Any]]

FLOATS = ("f32", "f16", "f64")
INTEGERS = ("i32", "i64", "u8", "i8", "i16", "u16", "u32", "u64")
NUMBERS = ("f32", "f16", "f64", *INTEGERS)
BOOLS = ("bool",)
ANY = (*NUMBERS, "bool")


@dataclass(frozen=True)
class Record:
    """`case` draws operand types and attributes. `low`..`high` bounds the data; `tolerance` is for f32. `epilogue`: the
    operands behind data and weights that the case has, of a record that has them."""

    op: str
    case: Callable[[Draw], Case]
    low: float = -2.0
    high: float = 2.0
    tolerance: float = 2e-5
    epilogue: str = ""

    @property
    def name(self) -> str:
        return f"{self.op} {self.epilogue}".rstrip()


def array_of(type_: TensorType, rng: np.random.Generator, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Random data: floats in [low, high), integers around 0 within the type's range, u64 also near its end."""
    dtype = type_.element.numpy
    if dtype.kind == "f":
        return rng.uniform(low, high, type_.shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, type_.shape).astype(dtype)
    array = rng.integers(0 if dtype.kind == "u" else -9, 10, type_.shape).astype(dtype)
    if type_.element.name == "u64":
        array -= rng.integers(0, 2, type_.shape).astype(dtype) * dtype.type(5)
    return array


def tolerance_for(record: Record, dtype: np.dtype) -> float:
    return max(record.tolerance, {2: 4e-3, 4: record.tolerance}.get(dtype.itemsize, 0.0))


# ---- building blocks ------------------------------------------------------------------------------------


def _pick(draw: Draw, *choices: Any) -> Any:
    return draw(st.sampled_from(choices))


def _element(draw: Draw, names: tuple[str, ...]) -> str:
    """The first name, f32 wherever it is allowed, half of the time: it is what backends mostly run."""
    return names[0] if draw(st.booleans()) else _pick(draw, *names)


def _dims(draw: Draw, least: int = 0, most: int = 4, *, smallest: int = 1) -> tuple[int, ...]:
    dims = draw(st.lists(st.integers(smallest, 6), min_size=least, max_size=most))
    if dims and draw(st.booleans()):
        dims[-1] = _pick(draw, 16, 17, 33)  # past a vector's width
    return tuple(dims)


def _type(element: str, shape: Any) -> TensorType:
    return TensorType(element_type(element), tuple(shape))


def _unary(elements: tuple[str, ...], **attrs: st.SearchStrategy[Any]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        return [_type(_element(draw, elements), _dims(draw))], {k: draw(v) for k, v in attrs.items()}

    return case


def _broadcasting(
    elements: tuple[str, ...], count: int = 2, *, condition: bool = False
) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        full, element = _dims(draw), _element(draw, elements)
        shapes = [full]
        for _ in range(count - 1):
            kept = full[draw(st.integers(0, len(full))) :] if draw(st.booleans()) else full
            shapes.append(tuple(1 if draw(st.booleans()) and draw(st.booleans()) else d for d in kept))
        if draw(st.booleans()):
            shapes.reverse()
        names = ["bool" if condition and i == 0 else element for i in range(count)]
        return [_type(n, s) for n, s in zip(names, shapes, strict=True)], {}

    return case


def _reduction(elements: tuple[str, ...]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape = _dims(draw)
        axes = draw(st.lists(st.integers(0, len(shape) - 1), unique=True)) if shape else []
        signed = [a - len(shape) if draw(st.booleans()) else a for a in axes]
        return [_type(_element(draw, elements), shape)], {"axes": signed, "keep_dims": draw(st.booleans())}

    return case


def _one_axis(elements: tuple[str, ...], *, keep_dims: bool = False) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape = _dims(draw, 1)
        attrs: dict[str, Any] = {"axis": draw(st.integers(-len(shape), len(shape) - 1))}
        if keep_dims:
            attrs["keep_dims"] = draw(st.booleans())
        return [_type(_element(draw, elements), shape)], attrs

    return case


# ---- movement -------------------------------------------------------------------------------------------


def _reshape(draw: Draw) -> Case:
    shape = list(_dims(draw))
    target = list(draw(st.permutations(shape)))
    if len(target) > 1 and draw(st.booleans()):
        target[:2] = [target[0] * target[1]]
    if draw(st.booleans()):
        target.insert(draw(st.integers(0, len(target))), 1)
    return [_type(_element(draw, ANY), shape)], {"shape": target}


def _bitcast(draw: Draw) -> Case:
    data = _type(_element(draw, NUMBERS), _dims(draw))
    return [data], {"element": _pick(draw, *(n for n in NUMBERS if element_type(n).size == data.element.size))}


def _transpose(draw: Draw) -> Case:
    shape = _dims(draw)
    return [_type(_element(draw, ANY), shape)], {"order": draw(st.permutations(range(len(shape))))}


def _concat(draw: Draw) -> Case:
    shape, element = list(_dims(draw, 1)), _element(draw, ANY)
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    types = [_type(element, [*shape[:axis], size, *shape[axis + 1 :]]) for size in sizes]
    return types, {"axis": axis - len(shape) if draw(st.booleans()) else axis}


def _slice(draw: Draw) -> Case:
    shape = _dims(draw)
    bounds = []
    for size in shape:
        low = draw(st.integers(0, size - 1))
        high = draw(st.integers(low + 1, size))
        step = _pick(draw, 1, 1, 2, 3, -1, -2)
        bounds.append((low, high, step) if step > 0 else (high - 1, low - 1, step))
    begin, end, strides = (list(v) for v in zip(*bounds, strict=True)) if bounds else ([], [], [])
    return [_type(_element(draw, ANY), shape)], {"begin": begin, "end": end, "strides": strides}


def _pad(draw: Draw) -> Case:
    shape, mode = _dims(draw), _pick(draw, "constant", "edge", "reflect")
    most = [2 if mode != "reflect" else min(2, size - 1) for size in shape]
    attrs = {side: [draw(st.integers(0, m)) for m in most] for side in ("pads_begin", "pads_end")}
    return [_type(_element(draw, NUMBERS), shape)], {**attrs, "mode": mode, "value": _pick(draw, 0.0, 3.0)}


def _broadcast(draw: Draw) -> Case:
    shape = _dims(draw)
    own = [1 if draw(st.booleans()) else d for d in shape[draw(st.integers(0, len(shape))) :]]
    return [_type(_element(draw, ANY), own)], {"shape": shape}


def _indices(draw: Draw, shape: Any) -> TensorType:
    return _type(_pick(draw, "i32", "i64"), shape)


def _gather(draw: Draw) -> Case:
    shape = _dims(draw, 1, 3)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    data = _type(_element(draw, ANY), shape)
    return [data, _indices(draw, _dims(draw, 0, 2))], {"axis": axis, "mode": _pick(draw, "clip", "wrap", "from_end")}


def _gather_elements(draw: Draw) -> Case:
    (data,), attrs = _one_axis(ANY)(draw)
    shape = list(data.shape)
    shape[attrs["axis"]] = draw(st.integers(1, 9))
    return [data, _indices(draw, shape)], {**attrs, "mode": _pick(draw, "clip", "wrap", "from_end")}


def _gather_nd(draw: Draw) -> Case:
    shape = _dims(draw, 1)
    coordinates = (draw(st.integers(1, len(shape))), *_dims(draw, 0, 2))
    return [_type(_element(draw, ANY), shape), _indices(draw, coordinates)], {}


def _scatter_nd(draw: Draw) -> Case:
    (data, indices), _ = _gather_nd(draw)
    updates = data.with_shape((*indices.shape[1:], *data.shape[indices.shape[0] :]))
    reductions = ["none"] if data.element.name == "bool" else ["none", "add", "mul", "max", "min"]
    return [data, indices, updates], {"reduction": _pick(draw, *reductions)}


def _argsort(draw: Draw) -> Case:
    types, attrs = _one_axis(NUMBERS)(draw)
    most = types[0].shape[attrs["axis"]]
    return types, {**attrs, "descending": draw(st.booleans()), "count": draw(st.integers(0, most))}


# ---- contractions and pools -----------------------------------------------------------------------------


def _matmul(draw: Draw, elements: tuple[str, ...] = NUMBERS) -> Case:
    element, batch = _element(draw, elements), _dims(draw, 0, 2)
    m, k, n = (_pick(draw, 1, 3, 5, 16, 17, 40) for _ in range(3))
    attrs = {"transpose_a": draw(st.booleans()), "transpose_b": draw(st.booleans())}
    a = (k, m) if attrs["transpose_a"] else (m, k)
    b = (n, k) if attrs["transpose_b"] else (k, n)
    batches = [batch, batch[draw(st.integers(0, len(batch))) :]]
    if draw(st.booleans()):
        batches.reverse()
    return [_type(element, (*batches[0], *a)), _type(element, (*batches[1], *b))], attrs


def clamp_attrs(draw: Draw, suffix: str = "") -> dict[str, float]:
    lower, upper = _pick(draw, (-math.inf, math.inf), (0.0, math.inf), (0.0, 1.5), (-1.0, 1.0))
    return {"lower" + suffix: lower, "upper" + suffix: upper}


def _matmul_bias(draw: Draw) -> Case:
    types, attrs = _matmul(draw, FLOATS)
    columns = types[1].shape[-2] if attrs["transpose_b"] else types[1].shape[-1]
    return [*types, _type(types[0].element.name, [columns])], {**attrs, **clamp_attrs(draw)}


def _convolution(draw: Draw, elements: tuple[str, ...] = ("f32", "f16", "f64", "i32")) -> Case:
    element, rank = _element(draw, elements), _pick(draw, 2, 2, 1, 3)
    groups = _pick(draw, 1, 1, 2, 4)
    per_group, outputs = _pick(draw, 1, 3, 8, 16), groups * _pick(draw, 1, 2, 5, 16)
    spatial = [draw(st.integers(4, 9 if rank < 3 else 5)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    attrs = {
        "strides": [_pick(draw, 1, 1, 2, 3) for _ in range(rank)],
        "dilations": [
            _pick(draw, 1, 1, 1, 2) if size > 2 * (k - 1) else 1
            for size, k in zip(spatial, kernel, strict=True)
        ],
        "pads_begin": [draw(st.integers(0, 2)) for _ in range(rank)],
        "pads_end": [draw(st.integers(0, 2)) for _ in range(rank)],
        "groups": groups,
        "data_dilations": [_pick(draw, 1, 1, 1, 2, 3) for _ in range(rank)] if draw(st.booleans()) else [1] * rank,
    }
    data = _type(element, [draw(st.integers(1, 2)), groups * per_group, *spatial])
    return [data, _type(element, [outputs, per_group, *kernel])], attrs


def _weight_gradient(draw: Draw) -> Case:
    from ngraph_mxnet.ir import get_op

    (data, weights), attrs = _convolution(draw, FLOATS)
    if draw(st.booleans()):  # blocks of channels, whole and not, and depthwise
        channels, outputs = (_pick(draw, 16, 17, 32, 64) for _ in range(2))
        attrs["groups"], outputs = (channels, channels) if draw(st.booleans()) else (1, outputs)
        data = data.with_shape((data.shape[0], channels, *data.shape[2:]))
        weights = data.with_shape((outputs, channels // attrs["groups"], *weights.shape[2:]))
    convolution = get_op("convolution")
    (head,) = convolution.infer([data, weights], convolution.complete([data], convolution.check_attrs(attrs)))
    return [data, head], {**attrs, "kernel": weights.shape[2:]}


def _fused_convolution(epilogue: str) -> Callable[[Draw], Case]:
    """Convolution and an epilogue with these operands."""

    def case(draw: Draw) -> Case:
        from ngraph_mxnet.ir import get_op

        types, attrs = _convolution(draw, FLOATS)
        op = get_op("convolution")
        (result,) = op.infer(types, op.check_attrs(attrs))
        types += [result if name == "residual" else result.with_shape(result.shape[1:2]) for name in epilogue.split()]
        attrs.update(clamp_attrs(draw))
        if "scale" in epilogue:
            attrs.update(clamp_attrs(draw, "2"))
        return types, attrs

    return case


def _affine(to_bytes: bool) -> Callable[[Draw], Case]:
    """Data, a scale or one for each index of an axis, and zero points."""

    def case(draw: Draw) -> Case:
        element, shape = _pick(draw, "u8", "i8"), draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
        axis = draw(st.integers(0, len(shape) - 1))
        per = [shape[axis]] if draw(st.booleans()) else []
        return [_type("f32" if to_bytes else element, shape), _type("f32", per), _type(element, per)], {"axis": axis}

    return case


def _lookup(draw: Draw) -> Case:
    """Bytes and a table, or one for each channel."""
    shape = draw(st.lists(st.integers(1, 20), min_size=2, max_size=4))
    return [_type("u8", shape), _type("u8", [*shape[1:2] * draw(st.booleans()), 256])], {}


def _quantized_convolution(epilogue: str) -> Callable[[Draw], Case]:
    """Of u8 and i8, with int32 bias, factor and addend, and more operands as `_fused_convolution`."""

    def case(draw: Draw) -> Case:
        from ngraph_mxnet.ir import get_op

        types, attrs = _convolution(draw, ("f32",))
        op = get_op("convolution")
        (result,) = op.infer(types, op.check_attrs(attrs))
        channels = result.shape[1:2]
        types = [_type("u8", types[0].shape), _type("i8", types[1].shape), _type("i32", channels)]
        types += [_type("f32", channels)] * 2
        types += [result if name == "residual" else _type("f32", channels) for name in epilogue.split()]
        attrs |= {"pad_value": _pick(draw, 0, 0, 7, 255), "short_sums": draw(st.booleans())} | clamp_attrs(draw)
        if "scale" in epilogue:
            attrs.update(clamp_attrs(draw, "2"))
        return types, attrs

    return case


def _quantized_matmul(draw: Draw) -> Case:
    rows, depth, channels = (draw(st.integers(1, 40)) for _ in range(3))
    batch, transpose = draw(st.lists(st.integers(1, 3), max_size=2)), draw(st.booleans())
    vectors = [_type("i32", [channels]), _type("f32", [channels]), _type("f32", [channels])]
    return ([_type("u8", [*batch, rows, depth]), _type("i8", [channels, depth] if transpose else [depth, channels]),
             *vectors], {"transpose_b": transpose, "short_sums": draw(st.booleans())} | clamp_attrs(draw))


def _integer_convolution(draw: Draw) -> Case:
    """Of bytes, with one zero point for data, and one or one for each filter for weights."""
    types, attrs = _convolution(draw, ("f32",))
    elements = [_pick(draw, "u8", "i8") for _ in range(2)]
    each = types[1].shape[:1] if draw(st.booleans()) else ()
    shapes = (*(type_.shape for type_ in types), (), each)
    return [_type(element, shape) for element, shape in zip(elements * 2, shapes, strict=True)], attrs


def _integer_matmul(draw: Draw) -> Case:
    rows, depth, channels = (draw(st.integers(1, 40)) for _ in range(3))
    batch, transpose = draw(st.lists(st.integers(1, 3), max_size=2)), draw(st.booleans())
    right = [*_pick(draw, [], batch), *((channels, depth) if transpose else (depth, channels))]
    elements = [_pick(draw, "u8", "i8") for _ in range(2)]
    shapes = ([*batch, rows, depth], right, [], [channels] if draw(st.booleans()) else [])
    return ([_type(element, shape) for element, shape in zip(elements * 2, shapes, strict=True)],
            {"transpose_b": transpose})


def _pool(elements: tuple[str, ...], *, average: bool) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        rank = _pick(draw, 2, 2, 1, 3)
        spatial = [draw(st.integers(4, 9 if rank < 3 else 5)) for _ in range(rank)]
        kernel = [draw(st.integers(1, 4)) for _ in range(rank)]
        attrs: dict[str, Any] = {
            "kernel": kernel,
            # A stride of at most the kernel, and an end padding below it, leave no window without data.
            "strides": [draw(st.integers(1, k)) for k in kernel],
            "pads_begin": [draw(st.integers(0, min(k - 1, 2))) for k in kernel],
            "rounding": _pick(draw, "floor", "ceil"),
        }
        attrs["pads_end"] = [
            draw(st.integers(0, max(k - s, 0))) for k, s in zip(kernel, attrs["strides"], strict=True)
        ]
        if average:
            attrs["include_pad"] = draw(st.booleans())
        channels = _pick(draw, 1, 3, 16, 17)
        return [_type(_element(draw, elements), [draw(st.integers(1, 2)), channels, *spatial])], attrs

    return case


def _max_pool_gradient(draw: Draw) -> Case:
    from ngraph_mxnet.ir import get_op

    (data,), attrs = _pool(FLOATS, average=False)(draw)
    pool = get_op("max_pool")
    return [data, *pool.infer([data], pool.complete([data], pool.check_attrs(attrs)))], attrs


# ---- images at other places, boxes ----------------------------------------------------------------------


def _image(draw: Draw) -> TensorType:
    sizes = [draw(st.integers(1, 9)), _pick(draw, 1, 4, 17)]
    return _type(_element(draw, FLOATS), [draw(st.integers(1, 2)), _pick(draw, 1, 3, 16, 17), *sizes])


def _sizes(draw: Draw) -> list[int]:
    return [draw(st.integers(1, 9)), _pick(draw, 1, 3, 17)]


def _random_mask(draw: Draw) -> Case:
    keep = draw(st.floats(0, 1))
    return [_type("i32", (4,))], {"shape": _dims(draw, smallest=0), "keep": keep, "stream": draw(st.integers(0, 9))}


def _random_uniform(draw: Draw) -> Case:
    return [_type("i32", (4,))], {"shape": _dims(draw, smallest=0), "stream": draw(st.integers(0, 9))}


def _resize(draw: Draw) -> Case:
    return [_image(draw)], {"sizes": _sizes(draw), "mode": _pick(draw, "bilinear", "nearest"),
                            "corners": draw(st.booleans())}


def _bilinear_sample(draw: Draw) -> Case:
    image = _image(draw)
    return [image, image.with_shape((image.shape[0], 2, *_sizes(draw)))], {}


def _regions(draw: Draw, *, align: bool) -> Case:
    image = _image(draw)
    attrs: dict[str, Any] = {"sizes": _sizes(draw), "scale": _pick(draw, 1.0, 2.5)}
    if align:
        attrs |= {"samples": _pick(draw, -1, 2), "offset": _pick(draw, 0.0, 0.5)}
    return [image, image.with_shape((draw(st.integers(1, 4)), 5))], attrs


def _box_nms(draw: Draw) -> Case:
    shape = [draw(st.integers(1, 3)), _pick(draw, 1, 5, 20), 7]
    attrs = {"overlap": _pick(draw, 0.1, 0.5), "valid": _pick(draw, -3.0, 0.5), "topk": _pick(draw, -1, 1, 4, 30),
             "coordinates": 3, "score": _pick(draw, 0, 2), "id": _pick(draw, -1, 1),
             "across_ids": draw(st.booleans()), "format": _pick(draw, "corner", "center")}
    attrs["in_place"] = attrs["id"] >= 0 and draw(st.booleans())
    attrs["keep"] = -1 if attrs["in_place"] else _pick(draw, -1, 0, 3)
    return [_type(_element(draw, ("f32", "f64")), shape)], attrs


# ---- normalizations -------------------------------------------------------------------------------------


def _channel_vectors(count: int, **attrs: st.SearchStrategy[Any]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape, element = (
            [*_dims(draw, 1, 1), _pick(draw, 1, 3, 16, 17), *_dims(draw, 0, 3)],
            _element(draw, FLOATS),
        )
        values = {k: draw(v) for k, v in attrs.items()}
        return [_type(element, shape)] + [_type(element, shape[1:2])] * count, values

    return case


def _factors(draw: Draw) -> Case:
    return [_type(_element(draw, FLOATS), _dims(draw, 1, 1))] * 4, {"epsilon": _pick(draw, 1e-5, 1e-3)}


def _scale_shift(draw: Draw) -> Case:
    types, _ = _channel_vectors(2)(draw)
    return types, clamp_attrs(draw)


def _attention(draw: Draw) -> Case:
    element, batch = _element(draw, FLOATS), _dims(draw, 0, 2)
    queries, keys, depth, width = (_pick(draw, 1, 3, 7, 16, 33) for _ in range(4))
    types = [_type(element, (*batch, *last)) for last in ((queries, depth), (keys, depth), (keys, width))]
    attrs: dict[str, Any] = {"scale": _pick(draw, 1.0, 0.25)}
    if draw(st.booleans()):
        scores = (*batch, queries, keys)
        kept = scores[draw(st.integers(0, len(scores))):]
        shape = tuple(1 if draw(st.booleans()) else d for d in kept)
        types.append(_type(_pick(draw, "bool", element), shape))
        # A row without a key has no softmax unless its weights are zeroed or its scores are numbers.
        attrs |= _pick(draw, {"zeroed": True}, {"fill": -1e4}, {"fill": -1e4, "zeroed": True})
    return types, attrs


def _layer_norm(draw: Draw) -> Case:
    (data,), attrs = _one_axis(FLOATS)(draw)
    vector = data.with_shape((data.shape[attrs["axis"]],))
    return [data, vector, vector], {**attrs, "epsilon": 1e-3}


def _attention_gradient(draw: Draw) -> Case:
    (queries, keys, values, *masks), attrs = _attention(draw)
    return [queries, keys, values, queries.with_shape((*queries.shape[:-1], values.shape[-1])), *masks], attrs


def _layer_norm_gradient(draw: Draw) -> Case:
    (data, vector, _), attrs = _layer_norm(draw)
    return [data, vector, data], attrs


def _log_softmax_pick(draw: Draw) -> Case:
    shape = _dims(draw, 1)
    mode = _pick(draw, "clip", "wrap", "from_end")
    return [_type(_element(draw, FLOATS), shape), _indices(draw, (*shape[:-1], 1))], {"mode": mode}


def _log_softmax_pick_gradient(draw: Draw) -> Case:
    (data, indices), attrs = _log_softmax_pick(draw)
    return [data, indices, *[data.with_shape(indices.shape)] * 3], attrs


def _clamp(draw: Draw) -> Case:
    (data,), _ = _unary(NUMBERS)(draw)
    return [data], clamp_attrs(draw)


def _fused(draw: Draw) -> Case:
    from cluster_graphs import cluster_graphs

    body = draw(cluster_graphs())
    return [p.type for p in body.parameters], {"body": body}


_STEPS = ("tanh", "sigmoid", "negative", "abs")


def _sums(draw: Draw, types: list[TensorType], count: int) -> Any:
    """A body of results of one shape, each a function of the sum of its parameters."""
    from ngraph_mxnet.ir import Builder

    b = Builder(name="body")
    values = [b.parameter(f"x{place}", type_.shape, type_.element) for place, type_ in enumerate(types)]
    total = sum(values[1:], values[0]) * 0.5
    steps = draw(st.lists(st.sampled_from(_STEPS), min_size=count, max_size=count))
    return b.results(*(b.apply(step, total) + values[place % len(values)] for place, step in enumerate(steps)))


def _foreach(draw: Draw) -> Case:
    element, shape = _element(draw, ("f32", "f16")), _dims(draw, most=2)
    data, states, captured = draw(st.integers(1, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    rows = draw(st.integers(0 if states else 1, 2))
    one, trips = _type(element, shape), draw(st.integers(1, 4))
    body = _sums(draw, [one] * (data + states + captured), states + rows)
    types = [_type(element, (trips, *shape))] * data + [one] * (states + captured)
    return types, {"body": body, "data": data, "states": states}


def _while_loop(draw: Draw) -> Case:
    """As long as the mean of the first variable is below a number."""
    from ngraph_mxnet.ir import Builder

    element, shape = _element(draw, ("f32", "f16")), _dims(draw, least=1, most=2)
    variables, captured, rows = draw(st.integers(1, 2)), draw(st.integers(0, 2)), draw(st.integers(0, 2))
    types = [_type(element, shape)] * (variables + captured)
    b = Builder(name="condition")
    values = [b.parameter(f"x{place}", type_.shape, type_.element) for place, type_ in enumerate(types)]
    mean = b.reduce_mean(values[0], axes=list(range(len(shape))), keep_dims=False)
    condition = b.results(mean < _pick(draw, -9.0, 0.5, 9.0))
    body = _sums(draw, types, variables + rows)
    return types, {"condition": condition, "body": body, "variables": variables, "trips": draw(st.integers(1, 4))}


def _cond(draw: Draw) -> Case:
    element, shape = _element(draw, ("f32", "f16")), _dims(draw, most=2)
    types, results = [_type(element, shape)] * draw(st.integers(1, 3)), draw(st.integers(1, 2))
    return [_type("bool", ()), *types], {name: _sums(draw, types, results) for name in ("then", "otherwise")}


# ---- recurrent ------------------------------------------------------------------------------------------


def _batch_norm_gradient(draw: Draw) -> Case:
    types, attrs = _channel_vectors(3, epsilon=st.just(1e-3))(draw)
    return [*types, types[0]], attrs


def _batch_norm_relu_gradient(draw: Draw) -> Case:
    types, attrs = _batch_norm_gradient(draw)
    return [*types, types[0]], attrs


def _clamp_gradient(draw: Draw) -> Case:
    x = _type(_element(draw, FLOATS), _dims(draw))
    return [x, x], {"lower": draw(st.sampled_from([-math.inf, 0.0])), "upper": draw(st.sampled_from([math.inf, 0.5])),
                    "above": draw(st.booleans())}


def _own_gradient(draw: Draw) -> Case:
    x, scaled = _type(_element(draw, FLOATS), _dims(draw)), draw(st.booleans())
    return [x if scaled else _type(x.element.name, _dims(draw)), x, x], {"scaled": scaled}


def _cell(gates: int) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        element, rows, units = _element(draw, FLOATS), draw(st.integers(1, 5)), _pick(draw, 1, 5, 16, 17, 130)
        both = _type(element, [rows, gates * units])
        return [both, both, _type(element, [rows, units])], {}

    return case


def _cell_gradient(slopes: int, heads: int) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        element, rows, units = _element(draw, FLOATS), draw(st.integers(1, 5)), _pick(draw, 1, 5, 16, 17, 130)
        return [_type(element, [rows, slopes * units]), *[_type(element, [rows, units])] * heads], {}

    return case


def _rnn(draw: Draw) -> Case:
    cell, element = _pick(draw, "lstm", "gru", "relu", "tanh"), _element(draw, FLOATS)
    steps, rows, units = draw(st.integers(1, 5)), draw(st.integers(1, 9)), _pick(draw, 1, 5, 16, 17, 40)
    state = _pick(draw, units, 3, 16) if cell == "lstm" else units
    columns = {"lstm": 4, "gru": 3}.get(cell, 1) * units
    shapes = [(steps, rows, columns), (columns, state), (columns,), (rows, state)]
    if cell == "lstm":
        shapes.append((rows, units))
        if state != units:
            shapes.append((state, units))
    return [_type(element, shape) for shape in shapes], {"cell": cell, "reverse": draw(st.booleans())}


def _gru_reset_first(draw: Draw) -> Case:
    element, steps, rows = _element(draw, FLOATS), draw(st.integers(1, 5)), draw(st.integers(1, 9))
    units = _pick(draw, 1, 5, 16, 17, 40)
    shapes = [(steps, rows, 3 * units), (2 * units, units), (2 * units,), (units, units), (units,), (rows, units)]
    return [_type(element, shape) for shape in shapes], {"reverse": draw(st.booleans())}


def _rnn_gradient(draw: Draw) -> Case:
    from ngraph_mxnet.ir import get_op

    types, attrs = _rnn(draw)
    *results, slopes = get_op("rnn_training").infer(types, attrs)
    return [types[1], slopes, *results, *types[5:]], attrs


# ---- the table ------------------------------------------------------------------------------------------

_LRN = {
    "size": st.sampled_from([1, 3, 5]),
    "alpha": st.just(0.05),
    "beta": st.just(0.75),
    "bias": st.just(2.0),
}
_REALS = "asinh atan cbrt cos cosh erf exp expm1 gelu sigmoid silu sin sinh softplus softsign tanh"
_RATIONALS = "abs ceiling floor negative relu round sign square trunc"

_RECORDS = [
    *(Record(op, _unary(FLOATS)) for op in _REALS.split()),
    *(Record(op, _unary(NUMBERS)) for op in _RATIONALS.split()),
    *(
        Record(op, _unary(FLOATS), low=0.05, high=4.0)
        for op in ["log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"]
    ),
    *(Record(op, _unary(FLOATS), low=-0.98, high=0.98) for op in ["acos", "asin", "atanh", "tan"]),
    Record("erfinv", _unary(FLOATS), low=-0.98, high=0.98),
    *(Record(op, _unary(FLOATS), low=0.1, high=5.0) for op in ["gamma", "lgamma"]),
    *(Record(op, _broadcasting(FLOATS)) for op in ["atan2", "gelu_gradient", "prelu"]),
    *(Record(op, _broadcasting(INTEGERS)) for op in ["bitwise_and", "bitwise_or", "bitwise_xor"]),
    Record("bitwise_not", _unary(INTEGERS)),
    Record("acosh", _unary(FLOATS), low=1.05, high=5.0),
    Record("identity", _unary(ANY)),
    Record("logical_not", _unary(BOOLS)),
    Record("clamp", _clamp),
    Record("leaky_relu", _unary(FLOATS, slope=st.sampled_from([0.0, 0.1, 0.25]))),
    Record("hard_swish", _unary(FLOATS, scale=st.sampled_from([1.0, -0.5]), shift=st.sampled_from([0.0, 0.25]))),
    Record("elu", _unary(FLOATS, alpha=st.sampled_from([0.5, 1.0]))),
    Record(
        "convert", _unary(ANY, element=st.sampled_from(ANY)), low=0.0
    ),
    *(
        Record(op, _broadcasting(NUMBERS))
        for op in ["add", "subtract", "multiply", "maximum", "minimum", "mod"]
    ),
    Record("divide", _broadcasting(NUMBERS), low=0.2),
    Record("power", _broadcasting(NUMBERS), low=0.1),
    *(Record(op, _broadcasting(BOOLS)) for op in ["logical_and", "logical_or", "logical_xor"]),
    *(
        Record(op, _broadcasting(ANY))
        for op in ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"]
    ),
    Record("select", _broadcasting(ANY, 3, condition=True)),
    *(Record(op, _reduction(NUMBERS)) for op in ["reduce_sum", "reduce_max", "reduce_min"]),
    Record("reduce_prod", _reduction(NUMBERS), low=0.8, high=1.2),
    Record("reduce_mean", _reduction(FLOATS)),
    Record("argmax", _one_axis(NUMBERS, keep_dims=True)),
    Record("argmin", _one_axis(NUMBERS, keep_dims=True)),
    Record("reshape", _reshape),
    Record("bitcast", _bitcast),
    Record("transpose", _transpose),
    Record("concat", _concat),
    Record("slice", _slice),
    Record("pad", _pad),
    Record("broadcast", _broadcast),
    Record("gather", _gather),
    Record("gather_elements", _gather_elements),
    Record("gather_nd", _gather_nd),
    Record("scatter_nd", _scatter_nd),
    Record("argsort", _argsort),
    Record("cumsum", _one_axis(NUMBERS)),
    Record("matmul", _matmul),
    Record("matmul", _matmul_bias, epilogue="bias"),
    Record("convolution", _convolution),
    *(Record("convolution", _fused_convolution(epilogue), epilogue=epilogue)
      for epilogue in ("bias", "bias residual", "bias residual scale shift")),
    Record("quantize", _affine(to_bytes=True), low=0.1),
    Record("dequantize", _affine(to_bytes=False)),
    Record("lookup", _lookup),
    Record("quantized_convolution", _quantized_convolution("")),
    *(Record("quantized_convolution", _quantized_convolution(epilogue), epilogue=epilogue)
      for epilogue in ("residual", "residual scale shift")),
    Record("quantized_matmul", _quantized_matmul),
    Record("integer_convolution", _integer_convolution),
    Record("integer_matmul", _integer_matmul),
    Record("resize", _resize),
    Record("adaptive_avg_pool", lambda draw: ([_image(draw)], {"sizes": _sizes(draw)})),
    Record("resize_gradient", _resize),
    Record("adaptive_avg_pool_gradient", lambda draw: ([_image(draw)], {"sizes": _sizes(draw)})),
    Record("bilinear_sample", _bilinear_sample),
    Record("roi_align", lambda draw: _regions(draw, align=True)),
    Record("roi_max_pool", lambda draw: _regions(draw, align=False)),
    Record("box_nms", _box_nms),
    Record("max_pool", _pool(NUMBERS, average=False)),
    Record("convolution_weight_gradient", _weight_gradient),
    Record("max_pool_gradient", _max_pool_gradient),
    Record("avg_pool", _pool(FLOATS, average=True)),
    Record("batch_norm", _channel_vectors(4, epsilon=st.sampled_from([1e-5, 1e-3])), low=0.3),
    Record("batch_norm_factors", _factors, low=0.3),
    Record("scale_shift", _scale_shift),
    Record("batch_norm_training", _channel_vectors(2, epsilon=st.just(1e-3))),
    Record("batch_norm_gradient", _batch_norm_gradient, low=0.3),
    Record("batch_norm_relu_gradient", _batch_norm_relu_gradient, low=0.3),
    Record("clamp_gradient", _clamp_gradient),
    Record("batch_norm_statistics", _channel_vectors(0)),
    Record("stop_gradient", _unary(ANY)),
    Record("own_gradient", _own_gradient),
    Record("lrn", _channel_vectors(0, **_LRN)),
    Record("softmax", _one_axis(FLOATS)),
    Record("log_softmax", _one_axis(FLOATS)),
    Record("layer_norm", _layer_norm),
    Record("layer_norm_gradient", _layer_norm_gradient),
    Record("log_softmax_pick", _log_softmax_pick),
    Record("log_softmax_pick_gradient", _log_softmax_pick_gradient),
    Record("attention", _attention),
    Record("attention_gradient", _attention_gradient),
    Record("lstm_cell", _cell(4)),
    Record("gru_cell", _cell(3)),
    Record("lstm_cell_training", _cell(4)),
    Record("gru_cell_training", _cell(3)),
    Record("lstm_cell_gradient", _cell_gradient(6, 2)),
    Record("gru_cell_gradient", _cell_gradient(5, 1)),
    # What a step rounds, the steps after it amplify.
    Record("rnn", _rnn, low=-0.6, high=0.6, tolerance=1e-4),
    Record("gru_reset_first", _gru_reset_first, low=-0.6, high=0.6, tolerance=1e-4),
    Record("rnn_training", _rnn, low=-0.6, high=0.6, tolerance=1e-4),
    Record("rnn_gradient", _rnn_gradient, low=-0.6, high=0.6, tolerance=1e-4),
    Record("fused", _fused),
    Record("foreach", _foreach),
    Record("while_loop", _while_loop),
    Record("cond", _cond),
    Record("random_mask", _random_mask),
    Record("random_uniform", _random_uniform),
    Record("dropout", _unary(FLOATS, rate=st.just(0.3))),
]
RECORDS: dict[str, Record] = {record.name: record for record in _RECORDS}
assert len(RECORDS) == len(_RECORDS), "an op has two records of one name"
