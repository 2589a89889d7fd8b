"""Normalizations at inference."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, any_axis, dims, maybe, pick

_EPS = st.sampled_from([1e-5, 1e-3, 0.1])


def _image(draw: Draw, least: int, most: int) -> tuple[int, ...]:
    """[N, C, *S]."""
    return (pick(draw, 1, 2), pick(draw, 1, 4, 16, 18), *dims(draw, least, most, 7))


def _batch_norm(draw: Draw) -> Case:
    shape = _image(draw, 0, 3) if draw(st.booleans()) else _image(draw, 2, 2)
    attrs = maybe(draw, eps=_EPS, fix_gamma=st.booleans(), use_global_stats=st.booleans(), momentum=0.8,
                  output_mean_var=st.booleans())
    if draw(st.booleans()):
        attrs["axis"] = any_axis(draw, len(shape))
    return Case([Operand(shape)], attrs)


def _sync_batch_norm(draw: Draw) -> Case:
    attrs = maybe(draw, eps=_EPS, fix_gamma=st.booleans(), use_global_stats=st.booleans())
    return Case([Operand(_image(draw, 2, 2))], {**attrs, "key": "k", "ndev": 1})


def _layer_norm(draw: Draw) -> Case:
    shape = dims(draw)
    attrs = maybe(draw, axis=any_axis(draw, len(shape)), eps=st.sampled_from([1e-5, 1e-12, 0.1]),
                  output_mean_var=st.booleans())
    return Case([Operand(shape)], attrs)


def _group_norm(draw: Draw) -> Case:
    shape, groups = list(_image(draw, 1, 3)), pick(draw, 1, 2, 3)
    shape[1] = groups * pick(draw, 1, 2, 8)
    attrs = maybe(draw, eps=_EPS, output_mean_var=st.booleans())
    return Case([Operand(tuple(shape))], {**attrs, "num_groups": groups})


def _of_images(draw: Draw) -> Case:
    """MXNet has these for images with several channels only."""
    return Case([Operand(_image(draw, 2, 2))], maybe(draw, eps=_EPS, fix_gamma=st.booleans()))


def _simple(least: int, most: int, **attrs: st.SearchStrategy) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        return Case([Operand(_image(draw, least, most))], maybe(draw, **attrs))

    return case


def _lrn(draw: Draw) -> Case:
    attrs = maybe(draw, alpha=st.sampled_from([1e-4, 0.1]), beta=st.sampled_from([0.75, 0.5]),
                  knorm=st.sampled_from([2.0, 1.5]))
    return Case([Operand(_image(draw, 2, 2))], {**attrs, "nsize": pick(draw, 1, 3, 5)})


RECORDS = [
    Record("BatchNorm", _batch_norm),
    Record("BatchNorm_v1", _of_images, outputs=(0,)),
    Record("_contrib_BatchNormWithReLU", _of_images, outputs=(0,)),
    Record("_contrib_SyncBatchNorm", _sync_batch_norm),
    Record("LayerNorm", _layer_norm),
    Record("InstanceNorm", _simple(1, 3, eps=_EPS)),
    Record("GroupNorm", _group_norm),
    Record("LRN", _lrn),
    Record("L2Normalization", _simple(1, 3, eps=_EPS, mode=st.sampled_from(["instance", "channel", "spatial"]))),
]
LEFT = [
    Left("LRN", Case([Operand((1, 4, 5, 5))], {"nsize": 2}), "size"),
]
