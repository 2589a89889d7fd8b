"""Images to another size."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, maybe, pick


def _nearest(draw: Draw) -> Case:
    scale, count = pick(draw, 2, 3, 4), pick(draw, 1, 2, 3)
    height, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    batch, channels = pick(draw, 1, 2), pick(draw, 1, 3, 16)
    together = pick(draw, "concat", "sum")
    factors = [scale, *(pick(draw, 1, scale) for _ in range(count - 1))]
    operands = [Operand((batch, channels if together == "sum" else pick(draw, channels, 2),
                         height * scale // factor, width * scale // factor)) for factor in factors]
    return Case(operands, {"scale": scale, "sample_type": "nearest", "num_args": count, "multi_input_mode": together})


def _bilinear(draw: Draw) -> Case:
    scale, filters = pick(draw, 2, 3, 4, 1), pick(draw, 2, 1, 16)
    kernel = 2 * scale - scale % 2
    shape = (pick(draw, 1, 2), filters, draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    return Case([Operand(shape), Operand((filters, 1, kernel, kernel))],
                {"scale": scale, "sample_type": "bilinear", "num_args": 2, "num_filter": filters})


def _resize(draw: Draw) -> Case:
    mode = pick(draw, "size", "odd_scale", "like", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up")
    shape = (pick(draw, 1, 2), pick(draw, 1, 3, 16, 20), draw(st.integers(2, 9)), draw(st.integers(2, 9)))
    attrs: dict[str, Any] = {"mode": mode, **maybe(draw, align_corners=st.booleans())}
    operands = [Operand(shape)]
    if mode == "like":
        operands.append(Operand((1, 2, draw(st.integers(1, 9)), draw(st.integers(1, 9)))))
    elif mode == "odd_scale" or (mode == "size" and draw(st.booleans())):
        attrs |= {"scale_height": pick(draw, 0.5, 1.5, 2.0), "scale_width": pick(draw, 0.5, 1.3, 3.0)}
    elif mode == "size":
        attrs |= {"height": draw(st.integers(1, 20)), "width": draw(st.integers(1, 20))}
    return Case(operands, attrs)


def _adaptive(draw: Draw) -> Case:
    shape = (pick(draw, 1, 2), pick(draw, 1, 3, 16, 20), draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    side = st.integers(1, 12)
    sizes = pick(draw, (draw(side), draw(side)), (draw(side),), draw(side))
    return Case([Operand(shape)], maybe(draw, output_size=sizes))


def _sampler(draw: Draw) -> Case:
    batch = pick(draw, 1, 2)
    sizes = [draw(st.integers(1, 9)) for _ in range(4)]
    data = Operand((batch, pick(draw, 1, 3, 16), *sizes[:2]))
    return Case([data, Operand((batch, 2, *sizes[2:]), low=-1.3, high=1.3)], maybe(draw, cudnn_off=True))


def _grid(draw: Draw) -> Case:
    sizes = (draw(st.integers(2, 9)), draw(st.integers(2, 9)))
    if draw(st.booleans()):
        return Case([Operand((pick(draw, 1, 3), 6))], {"transform_type": "affine", "target_shape": sizes})
    return Case([Operand((pick(draw, 1, 3), 2, *sizes))], {"transform_type": "warp"})


def _transformer(draw: Draw) -> Case:
    batch = pick(draw, 1, 2)
    data = Operand((batch, pick(draw, 1, 3), draw(st.integers(2, 9)), draw(st.integers(2, 9))))
    attrs = {"transform_type": "affine", "sampler_type": "bilinear",
             "target_shape": (draw(st.integers(2, 9)), draw(st.integers(2, 9)))}
    return Case([data, Operand((batch, 6), low=-1.0, high=1.0)], attrs)


RECORDS = [
    Record("UpSampling", _nearest),
    Record("UpSampling", _bilinear, variant="bilinear"),
    Record("_contrib_BilinearResize2D", _resize),
    Record("_contrib_AdaptiveAvgPooling2D", _adaptive),
    Record("BilinearSampler", _sampler, outputs=(0,)),
    Record("GridGenerator", _grid, outputs=(0,)),
    Record("SpatialTransformer", _transformer, tolerance=1e-3, outputs=(0,)),
]
