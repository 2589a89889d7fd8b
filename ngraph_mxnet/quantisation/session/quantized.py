"""`ngraph_mxnet.quantize`, and what it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.package.artefact import Summary
from ngraph_mxnet.quantisation.control import MOST_EVALUATIONS
from ngraph_mxnet.quantisation.recipe import Recipe
from ngraph_mxnet.quantisation.session.plan import Wishes, plan
from ngraph_mxnet.quantisation.session.report import Report, plot
from ngraph_mxnet.quantisation.session.samples import (
    Item,
    Metric,
    holds_all,
    in_batches,
    items,
    iterated,
    shapes_at_hand,
)
from ngraph_mxnet.quantisation.session.subject import BACKEND, Source, Subject
from ngraph_mxnet.runtime.artefact import Ranged, Weighted, compile_to_file
from ngraph_mxnet.runtime.compile import compile
from ngraph_mxnet.runtime.executable import Executable


class Quantized:
    """A model with a recipe. It is called as what `compile` gives: with arrays in the order of the inputs, or a dict.

    Attributes:
        recipe: which layers are in 8 bits, with which scales, and why others are not.
        report: prints as tables; `to_dict()` is for programs.
        shapes: of the inputs, for which it was measured, and is compiled.
    """

    def __init__(self, recipe: Recipe, report: Report, subject: Subject, whole: tuple[Weighted | Ranged, bool],
                 shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.recipe, self.report, self.shapes = recipe, report, dict(shapes)
        self._subject, self._whole = subject, whole
        self._compiled: Executable | None = None
        self._lock = ForkSafeLock()

    def compile(self, **options: Any) -> Executable:
        """For the CPU, with the weights as constants; `options` are the backend's own.

        Raises:
            ConfigError: as `ngraph_mxnet.compile`.
        """
        given = {"threads": self._subject.threads, "precision": "int8", "recipe": self.recipe, **options}
        return compile(self._subject.graph, BACKEND, **given)

    def __call__(self, *arrays: Any) -> list[Any]:
        """Run the model, which the first call compiles. Calls from several threads at once are safe.

        Raises:
            InputError: as of `Executable`.
        """
        with self._lock:
            if self._compiled is None:
                self._compiled = self.compile()
        return self._compiled(*arrays)

    def save(self, path: str | Path, *, isas: Sequence[str] = (), metadata: Mapping[str, str] | None = None,
             with_references: bool = False) -> Summary:
        """Write the compiled file, which runs without MXNet, ONNX and this package, for the shapes, or the ranges of
        sizes, that `quantize` was told.

        Args:
            isas, metadata, with_references: as of `ngraph_mxnet.export`.

        Raises:
            ConfigError, PackageError, OSError, UnsupportedError: as `ngraph_mxnet.export`.
        """
        graph, prepares = self._whole
        return compile_to_file(path, [graph], BACKEND, isas=isas, options={"precision": "int8", "recipe": self.recipe},
                               metadata=metadata, with_references=with_references, prepares=prepares)

    def save_recipe(self, path: str | Path) -> None:
        """Write the recipe as JSON, for NGRAPH_CALIBRATION and `recipe=`. Raises OSError where it can't be written."""
        self.recipe.save(path)

    def plot(self, path: str | Path) -> None:
        """Draw damages and times of the layers.

        Raises:
            ConfigError: matplotlib is not installed, or knows no format of that ending.
            OSError: it can't be written.
        """
        plot(self.report, path)


def quantize(model: Any, inputs: Any, *, metric: str | Metric | None = None, max_drop: float | None = None,
             method: str | None = None, corrections: Sequence[str] | None = None, params: Any = None,
             shapes: Mapping[str, Sequence[int | str]] | None = None, dtypes: Mapping[str, str] | None = None,
             threads: int | None = None, keep: Sequence[str] = (), evaluations: int = MOST_EVALUATIONS,
             only_faster: bool = True, progress: bool = True) -> Quantized:
    """Choose which convolutions and matrix products of a model compute in 8 bits on this CPU, and with which scales.

    Args:
        model: a Gluon HybridBlock; an MXNet symbol, as the object or the path of its `-symbol.json`; an ONNX model, as
            its path, its bytes or an `onnx.ModelProto`; a `Graph`.
        inputs: samples, all of which are held in memory: a DataLoader, a DataIter or another iterator of arrays, of
            tuples of arrays in the order of the inputs, or of dicts by name; or one array, tuple or dict that holds
            them all along the first axes. One array more than there are inputs is the labels; a dict calls them
            `labels`.
        metric: `top1`, the share of samples whose first output is largest, along axis 1, at their label; or a function
            of the outputs, each for all samples along its first axis, and the labels, of whose number more is better.
            By default top1 if there are labels; else, of one output with scores for each sample, the share of samples
            with the same class as in float, and of others, as a detector's, 1 less the relative error of all outputs.
        max_drop: how much less than in float the metric may be, on these samples. Without it nothing stays in float
            for accuracy.
        method: of `quantisation.choose.METHODS`, by which ranges are chosen; by default the one of minmax, mse and
            percentile_99.99 by which the outputs' error is the least on samples that were not calibrated on.
        corrections: of `smoothing`, `equalisation` and `bias` (docs/quantisation.md) those that are made, wherever they
            can be; none where it is empty. By default each with which the outputs' error is less, measured so.
        params: a symbol's or graph's weights, by name, or a symbol's `.params` file.
        shapes: of the inputs, by name, to compile for; sizes may be ranges (docs/shapes.md), which `save` compiles for.
            By default those of the model, or of the first sample; a batch of 1 where one array holds all samples.
        dtypes: of a symbol's or block's inputs; float32 where not given.
        threads: by default as many as anything compiled runs on.
        keep: names of layers that stay in float.
        evaluations: how often the metric is computed at most, for `max_drop`.
        only_faster: layers that are not faster in 8 bits stay in float, and so does a model that is not faster as a
            whole. False for a small model, or one for another machine.
        progress: bars on a terminal.

    Raises:
        ModelError, GraphError, InputError: the model is malformed, or samples, weights or shapes do not fit it.
        UnsupportedError: it can't be compiled as a whole, or nothing of it can be in 8 bits.
        ConfigError: an argument's value is not allowed, or the labels or outputs do not fit the metric.
    """
    wishes = Wishes(metric, max_drop, method, corrections, tuple(keep), evaluations, only_faster, progress)
    if threads is not None and threads < 1:
        raise ConfigError(f"threads: found {threads}, expected at least 1")
    source, found = _read(model, inputs, params, shapes or {}, dtypes)
    at_hand = shapes_at_hand(found[0], shapes or {}, source.fixed, holds_all(inputs))
    graph, weights = source.graph(at_hand)[0]()  # type: ignore[operator]
    subject = Subject(graph, weights, threads or config.threads())
    batches = in_batches(found, at_hand, {name: type_.element.numpy for name, type_ in subject.inputs.items()})
    del found  # the batches may be copies
    recipe, report = plan(subject, batches, wishes)
    recipe = replace(recipe, outline=subject.outline())
    return Quantized(recipe, report, subject, source.graph({**at_hand, **(shapes or {})}), at_hand)


def _read(model: Any, inputs: Any, params: Any, shapes: Mapping[str, Any],
          dtypes: Mapping[str, str] | None) -> tuple[Source, list[Item]]:
    """The model and the samples, the first of which may tell how the model's inputs are called."""
    given = iterated(inputs)
    first = list(islice(given, 1))
    if not first:
        raise ConfigError("inputs: found no samples, expected at least one")
    source = Source.of(model, params, dtypes, shapes, first[0])
    return source, list(items(chain(first, given), source.inputs))
