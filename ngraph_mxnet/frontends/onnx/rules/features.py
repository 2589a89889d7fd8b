"""Features of text and sound: the classical operators, and spectra."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.onnx.model import element_of
from ngraph_mxnet.frontends.onnx.rules.registry import Call, normal_axis, rule
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import f32, i64
from ngraph_mxnet.ops.compositions import converted, moved_axis, reshaped, slice_axis

_ML = "ai.onnx.ml"
MOST_LEVELS = 256
"""The most levels of a tree: each is a step in the graph."""


@rule("Binarizer", domain=_ML)
def binarizer(b: Builder, call: Call, x: Value) -> Value:
    return converted(b, x > call.attrs.float("threshold", 0.0), x)


@rule("ArrayFeatureExtractor", domain=_ML)
def array_feature_extractor(b: Builder, call: Call, x: Value, indices: Value) -> Value:
    """Elements along the last axis; the result is a matrix at least."""
    if x.rank == 1:
        x = b.reshape(x, shape=(1, x.size))
    return b.gather(x, b.reshape(indices, shape=(indices.size,)), axis=x.rank - 1)


@rule("TfIdfVectorizer")
def tf_idf_vectorizer(b: Builder, call: Call, x: Value) -> Value:
    """How often each n-gram of the pool occurs in a row; its numbers lie at most `max_skip_count` + 1 places apart."""
    attrs = call.attrs
    pool, starts = attrs.ints("pool_int64s", None), attrs.ints("ngram_counts")
    places, weights = attrs.ints("ngram_indexes"), attrs.floats("weights", None)
    least, most, skips = (attrs.int(name) for name in ("min_gram_length", "max_gram_length", "max_skip_count"))
    mode = attrs.choice("mode", "", ("TF", "IDF", "TFIDF"))
    if pool is None:
        raise UnsupportedError("a pool of strings, which are no element type of the IR")
    rows = reshaped(b, x, (1, x.size) if x.rank < 2 else x.shape)
    rows = converted(b, rows, i64)
    batch, size = rows.shape
    outputs, first = max(places) + 1, 0
    total: Value = b.constant(np.zeros((1, outputs), np.float32))
    for length, (begin, end) in enumerate(zip(starts, (*starts[1:], len(pool)), strict=True), 1):
        grams = np.asarray(pool[begin:end], np.int64).reshape(-1, length)
        columns = np.asarray(places[first : first + len(grams)])
        first += len(grams)
        if not (least <= length <= most and len(grams)):
            continue
        choice = np.zeros((len(grams), outputs), np.float32)
        choice[np.arange(len(grams)), columns] = 1
        for step in range(1, skips + 2 if length > 1 else 2):
            windows = size - step * (length - 1)
            if windows < 1:
                break
            at = np.arange(windows)[:, None] + step * np.arange(length)
            found = b.reshape(b.gather(rows, b.constant(at), axis=1), shape=(batch, windows, 1, length))
            same = b.reduce_min(b.convert(b.equal(found, b.constant(grams)), element=f32), axes=(3,))
            total = total + b.matmul(b.reduce_sum(same, axes=(1,)), b.constant(choice))
    if mode != "TF":
        if mode == "IDF":
            total = b.convert(total > 0, element=f32)
        if weights is not None:
            scale = np.ones(outputs, np.float32)
            scale[: len(weights)] = weights
            total = total * b.constant(scale)
    wanted = (batch, outputs) if x.rank == 2 else (outputs,)
    return reshaped(b, total if total.shape[0] == batch else b.broadcast(total, shape=(batch, outputs)), wanted)


# ---- trees ---------------------------------------------------------------------------------------------------

_MODES = ("less_equal", "less", "greater_equal", "greater", "equal", "not_equal")
_MEMBER = 6


@dataclass(frozen=True)
class _Trees:
    """All trees in arrays: each node and each leaf has a place, the leaves behind the nodes."""

    feature: np.ndarray
    mode: np.ndarray
    split: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    """Flags that are True where NaN goes to the side of a true comparison."""
    members: dict[int, np.ndarray]
    depth: int


@rule("TreeEnsemble", domain=_ML)
def tree_ensemble(b: Builder, call: Call, x: Value) -> Value:
    """All rows walk down all trees together, one level in each step; a leaf leads to itself."""
    attrs = call.attrs
    if attrs.int("post_transform", 0):
        raise UnsupportedError(f"post_transform={attrs.int('post_transform')}; supported: none")
    how, targets = attrs.int("aggregate_function", 1), attrs.int("n_targets", 1)
    trees = _read_trees(call)
    roots = np.asarray(attrs.ints("tree_roots"), np.int64)
    leaf_target = np.asarray(attrs.ints("leaf_targetids"), np.int64)
    leaf_weight = call.to_array(attrs.tensor("leaf_weights")).reshape(-1)
    inner, batch, element = len(trees.feature) - len(leaf_target), x.shape[0], x.element
    at: Value = b.constant(np.broadcast_to(roots, (batch, len(roots))))
    for _ in range(trees.depth):
        feature = b.gather(b.constant(trees.feature), at, axis=0)
        value = b.gather_elements(x, feature, axis=1)
        goes = _decided(b, trees, value, at, element.name)
        at = b.select(goes, b.gather(b.constant(trees.yes), at, axis=0), b.gather(b.constant(trees.no), at, axis=0))
    leaf = at - inner
    weight = b.gather(b.constant(leaf_weight, element), leaf, axis=0)
    target = b.reshape(b.gather(b.constant(leaf_target), leaf, axis=0), shape=(batch, len(roots), 1))
    here = b.equal(target, b.constant(np.arange(targets)))
    each = b.reshape(weight, shape=(batch, len(roots), 1))
    if how in (0, 1):
        total = b.reduce_sum(b.select(here, each, 0), axes=(1,))
        return total * (1 / len(roots)) if how == 0 else total
    worst = np.inf if how == 2 else -np.inf
    best = b.apply("reduce_min" if how == 2 else "reduce_max", b.select(here, each, worst), axes=(1,))
    return b.select(b.equal(best, worst), 0, best)


def _decided(b: Builder, trees: _Trees, value: Value, at: Value, element: str) -> Value:
    """bool [rows, trees]: whether the node's comparison holds."""
    split = b.gather(b.constant(trees.split, element), at, axis=0)
    mode = b.gather(b.constant(trees.mode), at, axis=0)
    result: Value | None = None
    for number in sorted(set(trees.mode.tolist())):
        if number == _MEMBER:
            width = max(map(len, trees.members.values()))
            sets = np.full((len(trees.mode), width), np.nan)
            for node, members in trees.members.items():
                sets[node, : len(members)] = members
            members = b.gather(b.constant(sets, element), at, axis=0)
            same = b.equal(b.reshape(value, shape=(*value.shape, 1)), members)
            holds = b.reduce_max(b.convert(same, element=f32), axes=(2,)) > b.constant(0.0, f32)
        else:
            holds = b.apply(_MODES[number], value, split)
        result = holds if result is None else b.select(b.equal(mode, number), holds, result)
    assert result is not None
    if not trees.missing.any():
        return result
    lost = b.not_equal(value, value) & b.gather(b.constant(trees.missing), at, axis=0)
    return result | lost


def _read_trees(call: Call) -> _Trees:
    attrs = call.attrs
    feature, yes, no = (np.asarray(attrs.ints(name), np.int64) for name in
                        ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids"))
    yes_leaf, no_leaf = (np.asarray(attrs.ints(name), bool) for name in ("nodes_trueleafs", "nodes_falseleafs"))
    mode = call.to_array(attrs.tensor("nodes_modes")).astype(np.int64).reshape(-1)
    split = call.to_array(attrs.tensor("nodes_splits")).reshape(-1)
    missing = np.asarray(attrs.ints("nodes_missing_value_tracks_true", (0,) * len(feature)), bool)
    attrs.ignore("nodes_hitrates")
    leaves, inner = len(attrs.ints("leaf_targetids")), len(feature)
    yes, no = np.where(yes_leaf, yes + inner, yes), np.where(no_leaf, no + inner, no)
    own = np.arange(inner, inner + leaves)
    if len({len(part) for part in (feature, yes, no, mode, split, missing)}) != 1 or mode.min() < 0 \
            or mode.max() > _MEMBER or max(yes.max(), no.max()) >= inner + leaves or min(yes.min(), no.min()) < 0:
        raise ModelError("the lists of nodes have different lengths, or name nodes that do not exist")
    given = attrs.tensor("membership_values", None)
    members, parts = {}, iter([]) if given is None else iter(_between_nan(call.to_array(given).reshape(-1)))
    for node in np.flatnonzero(mode == _MEMBER):
        members[int(node)] = next(parts, np.zeros(0))
    fill = np.zeros(leaves, np.int64)
    depth = _depth(yes, no, inner, attrs.ints("tree_roots"))
    return _Trees(np.r_[feature, fill], np.r_[mode, fill], np.r_[split, np.zeros(leaves)], np.r_[yes, own],
                  np.r_[no, own], np.r_[missing, fill.astype(bool)], members, depth)


def _between_nan(values: np.ndarray) -> list[np.ndarray]:
    """The sets of numbers in a list where a NaN ends each set."""
    ends = np.flatnonzero(np.isnan(values))
    return [part[~np.isnan(part)] for part in np.split(values, ends + 1)]


def _depth(yes: np.ndarray, no: np.ndarray, inner: int, roots: tuple[int, ...]) -> int:
    """Steps until every path is at a leaf.

    Raises:
        UnsupportedError: there is a cycle, or there are too many.
    """
    at, steps = {root for root in roots if root < inner}, 0
    while at:
        steps += 1
        if steps > MOST_LEVELS:
            raise UnsupportedError(f"trees of more than {MOST_LEVELS} levels, or with a cycle")
        at = {int(child) for node in at for child in (yes[node], no[node]) if child < inner}
    return steps


MOST_POINTS = 4096
"""The most points of a transform: its matrices have the square of that many elements."""


@rule("DFT")
def dft(b: Builder, call: Call, x: Value) -> Value:
    """[..., n, ..., 1 or 2] along an axis, real or complex; inverse and one-sided ones too."""
    rank = x.rank
    inverse, onesided = call.attrs.bool("inverse"), call.attrs.bool("onesided")
    axis = normal_axis(call.number(2, "axis", -2) if call.opset >= 20 else call.attrs.int("axis", 1), rank)
    if axis == rank - 1 or x.shape[-1] not in (1, 2):
        raise ModelError(f"axis={axis} of {x.type}, expected one before a last axis of 1 or 2")
    to_real = inverse and onesided
    size = x.shape[axis]
    points = call.number(1, "dft_length", 2 * (size - 1) if to_real else size)
    wanted = points // 2 + 1 if to_real else points
    if size > wanted:
        x = slice_axis(b, x, axis, 0, wanted)
    elif size < wanted:
        x = b.pad(x, pads_end=[wanted - size if i == axis else 0 for i in range(rank)])
    out = transformed(b, moved_axis(b, x, axis, rank - 2), points, inverse=inverse, onesided=onesided)
    return moved_axis(b, out, rank - 2, axis)


def transformed(b: Builder, x: Value, points: int, *, inverse: bool, onesided: bool) -> Value:
    """[..., n, 1 or 2] -> [..., m, 2], or [..., points, 1] of half a spectrum."""
    if not 0 < points <= MOST_POINTS:
        raise UnsupportedError(f"a transform of {points} points; supported: 1 to {MOST_POINTS}")
    real_result, parts = inverse and onesided, x.shape[-1]
    count = points // 2 + 1 if onesided and not inverse else points
    angle = 2 * np.pi / points * (np.outer(np.arange(x.shape[-2]), np.arange(count)) % points)
    cosine, sine = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    if inverse:
        cosine, sine = cosine / points, sine / points
    if real_result:  # the half that is not there would add the conjugates
        weight = np.full((x.shape[-2], 1), 2.0)
        weight[0] = 1
        if points % 2 == 0:
            weight[-1] = 1
        matrix = np.stack([cosine * weight, -sine * weight], axis=1)[:, :parts, :, None]
    else:
        matrix = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], axis=1)[:, :parts]
    results = matrix.shape[-1]
    rows = reshaped(b, x, (*x.shape[:-2], x.shape[-2] * parts))
    flat = b.constant(matrix.reshape(rows.shape[-1], -1), x.element)
    whole = b.matmul(reshaped(b, rows, (rows.size // rows.shape[-1], rows.shape[-1])), flat)
    return reshaped(b, whole, (*x.shape[:-2], count, results))


@rule("STFT")
def short_time_dft(b: Builder, call: Call, x: Value) -> Value:
    """[N, samples, 1 or 2] -> [N, frames, m, 2]: the transforms of frames, times a window."""
    step, window = call.number(1, "frame_step"), call.optional(2)
    if call.optional(3) is not None:
        length = call.number(3, "frame_length")
    elif window is not None:
        length = window.shape[0]
    else:
        raise ModelError("neither a window nor frame_length")
    if x.rank == 2:
        x = b.reshape(x, shape=(*x.shape, 1))
    samples = x.shape[1]
    frames = (samples - length) // step + 1 if step > 0 else 0
    if frames < 1:
        raise ModelError(f"frame_step={step}, frame_length={length} of {samples} samples")
    cut = b.gather(x, b.constant(np.arange(frames)[:, None] * step + np.arange(length)), axis=1)
    if window is not None:
        cut = cut * b.reshape(window, shape=(1, 1, length, 1))
    return transformed(b, cut, length, inverse=False, onesided=call.attrs.bool("onesided", True))


@rule("MelWeightMatrix")
def mel_weight_matrix(b: Builder, call: Call) -> Value:
    """A constant: triangles over the bins of a spectrum, at equal distances in mel."""
    bins, length, rate = (call.static_ints(i, name)[0] for i, name in
                          enumerate(("num_mel_bins", "dft_length", "sample_rate")))
    low, high = (float(call.static(i, name).reshape(())) for i, name in
                 ((3, "lower_edge_hertz"), (4, "upper_edge_hertz")))
    spectrum = length // 2 + 1
    if not (0 < bins <= MOST_POINTS and 0 < length <= MOST_POINTS and rate > 0):
        raise UnsupportedError(f"{bins} bins of {length} points at {rate} Hz; supported: 1 to {MOST_POINTS}")
    mels = [2595 * np.log10(1 + hertz / 700) for hertz in (low, high)]
    places = np.arange(bins + 2) * (mels[1] - mels[0]) / (bins + 2) + mels[0]
    edges = ((length + 1) * (700 * (10 ** (places / 2595) - 1)) // rate).astype(int)
    if edges.min() < 0 or edges.max() >= spectrum:
        raise ModelError(f"edges from {low} to {high} Hz lie outside a spectrum of {spectrum} bins at {rate} Hz")
    at = np.arange(spectrum)[:, None]
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    rising = np.where(centre > left, (at - left) / np.maximum(centre - left, 1), 1.0)
    falling = (right - at) / np.maximum(right - centre, 1)
    matrix = np.where((at >= left) & (at <= centre), rising, 0.0)
    matrix = np.where((at >= centre) & (at < right) & (right > centre), falling, matrix)
    return b.constant(matrix, element_of(call.attrs.int("output_datatype", 1)))
