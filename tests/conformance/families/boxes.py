"""Boxes of a detector, and what it reads from regions of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from records import Case, Draw, Left, Operand, Record, maybe, pick

_FORMATS = st.sampled_from(["corner", "center"])


def _boxes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Corner boxes in [0, 1] that often overlap."""
    corners = rng.uniform(0, 0.6, (*shape, 2))
    return np.concatenate([corners, corners + rng.uniform(0.05, 0.4, (*shape, 2))], axis=-1).astype(np.float32)


def _rng(draw: Draw) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def _nms(draw: Draw) -> Case:
    rng = _rng(draw)
    shape = (*pick(draw, (), (1,), (3,), (2, 2)), pick(draw, 6, 1, 20, 40))
    first = pick(draw, 2, 0, 3)
    others = [column for column in range(7) if not first <= column < first + 4]
    score, identity = (int(v) for v in rng.permutation(others)[:2])
    rows = rng.uniform(0, 1, (*shape, 7)).astype(np.float32)
    rows[..., first : first + 4] = _boxes(rng, *shape)
    rows[..., identity] = rng.integers(-1, 3, shape)
    # Equal scores keep their order; distinct ones are well apart, so that none is on the threshold.
    rows[..., score] = rng.integers(0, 8, shape) / 8 if draw(st.booleans()) else rng.uniform(0, 1, shape)
    attrs: dict[str, Any] = {"coord_start": first, "score_index": score}
    if draw(st.booleans()):
        attrs |= {"id_index": identity, **maybe(draw, force_suppress=st.booleans(), background_id=st.integers(-1, 2))}
    attrs |= maybe(draw, overlap_thresh=st.sampled_from([0.3, 0.5, 0.7]), topk=st.integers(-1, 8),
                   valid_thresh=st.sampled_from([0.01, 0.3, 0.9, 2.0]), in_format=_FORMATS, out_format=_FORMATS)
    return Case([Operand(rows.shape, values=rows)], attrs)


def _iou(draw: Draw) -> Case:
    rng = _rng(draw)
    shapes = [pick(draw, (3,), (1,), (2, 4)) for _ in range(2)]
    boxes = [_boxes(rng, *shape) for shape in shapes]
    if draw(st.booleans()):
        boxes[0][..., 2] -= np.float32(0.3)  # some have a negative side
    return Case([Operand(box.shape, values=box) for box in boxes], maybe(draw, format=_FORMATS))


def _decode(draw: Draw) -> Case:
    count = pick(draw, 1, 5, 40)
    attrs = maybe(draw, clip=st.sampled_from([-1.0, 0.5]), format=_FORMATS,
                  **{f"std{i}": st.sampled_from([0.1, 0.2, 2.0]) for i in range(4)})
    return Case([Operand((pick(draw, 1, 2), count, 4)), Operand((1, count, 4), low=0.0)], attrs)


def _detection(draw: Draw) -> Case:
    rng, batch, classes, count = _rng(draw), pick(draw, 1, 3), pick(draw, 2, 4), pick(draw, 6, 1, 30)
    scores = rng.uniform(0, 1, (batch, classes, count)).astype(np.float32)
    if draw(st.booleans()):
        scores = np.round(scores * 8) / 8  # equal scores keep their order
    attrs = maybe(draw, clip=st.booleans(), threshold=st.sampled_from([0.0, 0.5, 0.9, 2.0]),
                  force_suppress=st.booleans(), nms_threshold=st.sampled_from([0.1, 0.3, 1.0]),
                  nms_topk=st.sampled_from([0, 1, 4, 100]), variances=(0.2, 0.1, 0.3, 0.1),
                  background_id=st.integers(0, 2))
    return Case([Operand(scores.shape, values=scores), Operand((batch, 4 * count)),
                 Operand((1, count, 4), values=_boxes(rng, 1, count))], attrs)


def _prior(draw: Draw) -> Case:
    sizes = draw(st.lists(st.sampled_from([0.2, 0.5, 0.9]), min_size=1, max_size=3))
    ratios = draw(st.lists(st.sampled_from([1.0, 2.0, 0.5, 3.0]), min_size=1, max_size=3))
    attrs = maybe(draw, sizes=tuple(sizes), ratios=tuple(ratios), clip=st.booleans(), offsets=(0.3, 0.6),
                  steps=(0.1, 0.2))
    return Case([Operand((1, 3, draw(st.integers(1, 6)), draw(st.integers(1, 6))))], attrs)


def _rois(draw: Draw, batch: int, *, proper: bool) -> Operand:
    """Regions of images that there are. `proper`: each has an area."""
    rng, count = _rng(draw), draw(st.integers(1, 4))
    corners = rng.uniform(-3, 12, (count, 2))
    spans = rng.uniform(0.5 if proper else -4, 12, (count, 2))
    rois = np.concatenate([rng.integers(0, batch, (count, 1)), corners, corners + spans], axis=1)
    return Operand((count, 5), values=rois.astype(np.float32))


def _roi_align(draw: Draw) -> Case:
    batch, sizes = pick(draw, 1, 2), (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    attrs: dict[str, Any] = {"pooled_size": sizes, "spatial_scale": pick(draw, 1.0, 0.5)}
    attrs |= maybe(draw, sample_ratio=st.sampled_from([1, 2, 3]), aligned=st.booleans(),
                   position_sensitive=st.booleans())
    channels = pick(draw, 1, 3, 16, 20) * (sizes[0] * sizes[1] if attrs.get("position_sensitive") else 1)
    data = Operand((batch, channels, draw(st.integers(1, 12)), draw(st.integers(1, 12))))
    return Case([data, _rois(draw, batch, proper=attrs.get("aligned", False))], attrs)


def _roi_pooling(draw: Draw) -> Case:
    batch, sizes = pick(draw, 1, 2), (draw(st.integers(1, 4)), draw(st.integers(1, 4)))
    data = Operand((batch, pick(draw, 1, 3, 16, 20), draw(st.integers(1, 12)), draw(st.integers(1, 12))))
    return Case([data, _rois(draw, batch, proper=False)], {"pooled_size": sizes, "spatial_scale": pick(draw, 1.0, 0.5)})


RECORDS = [
    Record("_contrib_box_nms", _nms, outputs=(0,)),
    Record("_contrib_box_iou", _iou),
    Record("_contrib_MultiBoxDetection", _detection),
    Record("_contrib_box_decode", _decode),
    Record("_contrib_MultiBoxPrior", _prior),
    # A sample on the edge of what is read falls to either side by rounding.
    Record("_contrib_ROIAlign", _roi_align, tolerance=1e-3),
    Record("ROIPooling", _roi_pooling, outputs=(0,)),
]
LEFT: list[Left] = [
    Left("_contrib_MultiBoxDetection", Case([Operand((1, 3, 5)), Operand((1, 20)), Operand((1, 5, 4))],
                                            {"nms_threshold": 1.5}), "suppresses nothing"),
]
