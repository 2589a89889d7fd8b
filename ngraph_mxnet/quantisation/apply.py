"""A recipe, and how it is applied to a graph.

It says which products of a model are in 8 bits, with which scales of their data, and which stay in float, and why: what
a compilation needs, in memory and as a file of JSON.

Data is u8 with one scale and zero point, weights are i8 with a scale for each output channel. These scales, and what is
added to the bias for the error of rounding, are made of the weights themselves: so they may change. A node of the
optimised graph, with bias, residual, clamp and all, becomes one node over integers; what stands around it stays in
float32, and `quantize` nodes stand between. A residual that only such nodes read is kept in 8 bits, too.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ngraph_mxnet.base.errors import CalibrationError, listed
from ngraph_mxnet.base.files import new_file
from ngraph_mxnet.ir.graph import Graph, Node, Value, make_node
from ngraph_mxnet.ir.module import Changes, Derivation
from ngraph_mxnet.quantisation.calibration import BOUNDS, LEAST_SCALE, Calibration, Channels, affine
from ngraph_mxnet.quantisation.layers import (
    BIAS,
    CORRECTIONS,
    DIVIDING,
    QUANTIZED,
    Maker,
    Outline,
    bias_correction,
    matched,
    outline,
    weight_axes,
)

FORMAT, VERSION = "ngraph_mxnet recipe", 3
"""Versions 1 and 2 tell layers by their names alone, which nothing is compiled by (`read_recipe`)."""
METHOD = "mse"
"""How ranges are chosen where nobody says."""
RESIDUAL = " residual"
"""The ending that makes a product's name the name of its residual."""
_ZIP = b"PK"


Numbers = tuple[float, ...]
"""Numbers of float32, one for each input channel of a product."""


class Scale(NamedTuple):
    """A scale of u8: a real number is (q - zero point) * scale."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Recipe:
    """
    Attributes:
        scales: of the data of each product that is in 8 bits, by the product's name (`apply.products`), and of its
            residual.
        kept: the products that stay in float, with the reason.
        method: of `METHODS`, by which the scales were chosen.
        corrections: of `CORRECTIONS`, what was gathered for them: for each product that they change, numbers by input
            channel. Of SMOOTHING and EQUALISATION the data is divided by them before it becomes bytes, and weights are
            multiplied (`scales` are of divided data); of BIAS they are the means of the data, divided.
        outline: of the graph that it was made of, whose layers have these names: by it other graphs' layers are told.
            None where the names are those of the graph to compile, as in the process that makes a recipe.
    """

    scales: Mapping[str, Scale]
    kept: Mapping[str, str] = field(default_factory=dict)
    method: str = METHOD
    corrections: Mapping[str, Mapping[str, Numbers]] = field(default_factory=dict)
    outline: Outline | None = None

    @staticmethod
    def of_calibration(calibration: Calibration, method: str = METHOD, kept: Mapping[str, str] | None = None) -> Recipe:
        """All products of which something was seen, but those that are kept in float. Raises ConfigError: there is no
        such method."""
        kept = dict(kept or {})
        scales = {}
        for name in calibration:
            if not name.endswith(RESIDUAL) and not calibration[name].is_finite:
                kept.setdefault(name, "nothing finite was seen of its data")
        for name in calibration:
            if name.removesuffix(RESIDUAL) in kept or not calibration[name].is_finite:
                continue
            scales[name] = _scale_of(calibration, name, method)
        return Recipe(scales, kept, method)

    def keeping(self, kept: Mapping[str, str]) -> Recipe:
        """This one, with more products that stay in float."""
        return replace(self._of(lambda product: product not in kept), kept={**self.kept, **kept})

    @property
    def products(self) -> list[str]:
        return [name for name in self.scales if not name.endswith(RESIDUAL)]

    def renamed(self, names: Mapping[str, str]) -> Recipe:
        """This one with the layers that are in `names` alone, called by these."""
        def one(name: str) -> str | None:
            product = name.removesuffix(RESIDUAL)
            return names[product] + name[len(product):] if product in names else None

        def table(found: Mapping[str, Any]) -> dict[str, Any]:
            return {new: entry for name, entry in found.items() if (new := one(name)) is not None}

        corrections = {kind: table(found) for kind, found in self.corrections.items()}
        return Recipe(table(self.scales), table(self.kept), self.method,
                      {kind: found for kind, found in corrections.items() if found})

    def alone(self, product: str) -> Recipe:
        """This one with a single product, and its residual, in 8 bits."""
        return self._of(lambda name: name == product)

    @property
    def factors(self) -> dict[str, Numbers]:
        """By which the data of products is divided."""
        return {name: numbers for kind in DIVIDING for name, numbers in self.corrections.get(kind, {}).items()}

    @property
    def means(self) -> Mapping[str, Numbers]:
        """Means of the data of products whose bias is corrected."""
        return self.corrections.get(BIAS, {})

    def dividing(self, correction: str, factors: Mapping[str, Numbers], divided: Calibration) -> Recipe:
        """This one, where the data of these products is divided, too; `divided` has seen it so. Raises
        CalibrationError: nothing was seen of it."""
        scales = {name: _scale_of(divided, name, self.method) for name in factors}
        return replace(self, scales={**self.scales, **scales}, corrections={
            **self.corrections, correction: {**self.corrections.get(correction, {}), **factors}})

    def correcting(self, means: Mapping[str, np.ndarray]) -> Recipe:
        """This one, where biases are corrected, too. The means are of data that is not divided."""
        factors = self.factors
        divided = {name: numbers / np.array(factors.get(name, 1.0)) for name, numbers in means.items()}
        added = {name: tuple(numbers.astype(np.float32).tolist()) for name, numbers in divided.items()}
        return replace(self, corrections={**self.corrections, BIAS: {**self.means, **added}})

    def _of(self, wanted: Callable[[str], bool]) -> Recipe:
        """This one with these products alone."""
        corrections = {kind: {name: numbers for name, numbers in table.items() if wanted(name)}
                       for kind, table in self.corrections.items()}
        return replace(
            self, scales={name: scale for name, scale in self.scales.items() if wanted(name.removesuffix(RESIDUAL))},
            corrections={kind: table for kind, table in corrections.items() if table})

    def text(self) -> str:
        """Return the recipe as JSON. Equal recipes give the same text."""
        scales = {name: [scale.scale, scale.zero_point] for name, scale in self.scales.items()}
        corrections = {kind: {name: _written(numbers) for name, numbers in table.items()}
                       for kind, table in self.corrections.items()}
        return json.dumps({"format": FORMAT, "version": VERSION, "method": self.method, "scales": scales,
                           "kept": dict(self.kept), "corrections": corrections,
                           "outline": None if self.outline is None else self.outline.rows()}, indent=1)

    def save(self, path: str | Path) -> None:
        """Write it as one file, which appears whole or not at all. Raises OSError where it can't be written."""
        with new_file(path) as file:
            file.write(self.text().encode())

    @staticmethod
    def of_text(text: str, where: str = "recipe") -> Recipe:
        """Read what `text` gives. Raises CalibrationError where it is something else."""
        try:
            found = json.loads(text)
        except ValueError as error:
            raise CalibrationError(f"{where}: found no JSON, expected a recipe: {error}") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise CalibrationError(f"{where}: found something else than a recipe")
        if found.get("version") not in (1, 2, VERSION):
            raise CalibrationError(f"{where}: found version {found.get('version')!r} of recipes, expected {VERSION} "
                                   "or less: quantise anew, or read it with the package that wrote it")
        scales, kept, method = found.get("scales"), found.get("kept"), found.get("method")
        corrections = found.get("corrections", {})
        if not (isinstance(scales, dict) and all(map(_is_scale, scales.values())) and isinstance(method, str)
                and isinstance(kept, dict) and all(isinstance(reason, str) for reason in kept.values())
                and isinstance(corrections, dict) and corrections.keys() <= {*CORRECTIONS}):
            raise CalibrationError(f"{where}: found a recipe whose scales, kept, method or corrections are none")
        read = {kind: _read(where, kind, table, scales) for kind, table in corrections.items()}
        return Recipe({name: Scale(*pair) for name, pair in scales.items()}, kept, method, read,
                      _outline(where, found.get("outline"), {name.removesuffix(RESIDUAL) for name in scales}))

    @staticmethod
    def load(path: str | Path) -> Recipe:
        """Read a file of a recipe, or of a `Calibration`, of which the ranges are chosen by `METHOD`.

        Raises:
            CalibrationError: it is neither.
            OSError: it can't be read.
        """
        content = Path(path).read_bytes()
        if content.startswith(_ZIP):
            return Recipe.of_calibration(Calibration.load(path))
        return Recipe.of_text(content.decode(errors="replace"), str(path))


def read_recipe(given: Any) -> Recipe:
    """A recipe as callers give it: as an object, its text, or a file of it.

    Raises:
        CalibrationError: the file is none of a recipe, or can't be read, or tells layers by names alone.
    """
    if isinstance(given, Recipe):
        return given
    if isinstance(given, str) and given.lstrip().startswith("{"):
        found, where = Recipe.of_text(given), "option recipe"
    else:
        try:
            found, where = Recipe.load(given), str(given)
        except OSError as error:
            raise CalibrationError(f"option recipe: {given}: {error.strerror or error}") from None
        except TypeError:
            raise CalibrationError(f"option recipe: found {given!r:.80}, expected a recipe or a file of one") from None
    if found.outline is None:
        raise CalibrationError(f"{where}: found a recipe of version 1 or 2, or a calibration, which tells layers by "
                               "their names alone, and a model's second instance has others: write it anew, with "
                               "`quantize --recipe`")
    return found


def _scale_of(calibration: Calibration, name: str, method: str) -> Scale:
    scale, zero_point = affine(*calibration.range(name, method), "u8")
    return Scale(float(scale), zero_point)


def _written(numbers: Numbers) -> str:
    """float32, little-endian, in base64."""
    return b64encode(np.asarray(numbers, "<f4").tobytes()).decode()


def _read(where: str, kind: str, table: Any, scales: Mapping[str, Any]) -> dict[str, Numbers]:
    """Return the numbers that `_written` wrote for each product."""
    found = {}
    for name, text in table.items() if isinstance(table, dict) else [("every product", None)]:
        try:
            numbers = np.frombuffer(b64decode(str(text), validate=True), "<f4")
        except ValueError:  # no base64, or no whole numbers
            numbers = np.empty(0, np.float32)
        if (name not in scales or not numbers.size or not np.isfinite(numbers).all()
                or (kind in DIVIDING and numbers.min() < LEAST_SCALE)):
            raise CalibrationError(f"{where}: found numbers of the correction {kind} for {name} that are none, "
                                   "expected finite ones, positive to divide by, of a product that has a scale")
        found[name] = tuple(numbers.tolist())
    return found


def _outline(where: str, rows: Any, products: set[str]) -> Outline | None:
    if rows is None:
        return None
    try:
        found = Outline.of_rows(rows)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise CalibrationError(f"{where}: found an outline of the graph that is none: {error}") from None
    missing = sorted(products - {vertex.name for vertex in found.vertices})
    if missing:
        raise CalibrationError(f"{where}: found scales of {listed(missing)}, which the outline of the graph has not")
    return found


def _is_scale(pair: Any) -> bool:
    if not (isinstance(pair, list) and len(pair) == 2):
        return False
    scale, zero_point = pair
    return (isinstance(scale, float | int) and math.isfinite(scale) and scale > 0 and isinstance(zero_point, int)
            and 0 <= zero_point <= 255)


LEAST_LARGEST = 1e-30
"""The largest weight of a channel of zeros."""
_LARGEST = BOUNDS["i8"][1]
"""The number that the largest weight of a channel becomes."""
_BIAS_BITS = 28
"""Of the largest bias that is a whole number of the scale of a product's sums."""
SHORT = 126
"""The limit of the sum of four weights: rounding adds two at most, and 128 times 255 fits 16 bits."""


def products(graph: Graph) -> dict[str, Node]:
    """The nodes that can be in 8 bits, by name: their weights are weights, or derived from such, and their data is not;
    their sums need not be exact.

    A name is the framework's, of the first node that it stands for; of several nodes with one name the later ones are
    numbered.
    """
    derivation = Derivation()
    found: dict[str, Node] = {}
    for node in graph.nodes:
        if not node.op.epilogue or node.op.multiplies_bytes or node.attrs["exact"]:
            continue
        if node.inputs[1].node is node.inputs[0].node is not None:
            continue
        data, weights = (derivation.of(value) for value in node.inputs[:2])
        plain = not node.attrs.get("transpose_a") and (node.op.kind == "convolution" or node.inputs[1].type.rank == 2)
        unstretched = all(step == 1 for step in node.attrs.get("data_dilations", ()))
        if data is Changes.WITH_CALLS and weights is not Changes.WITH_CALLS and plain and unstretched:
            name = node.origin.split(" + ")[0] or node.op.name
            place = name if name not in found else next(
                f"{name}#{number}" for number in range(2, len(found) + 2) if f"{name}#{number}" not in found)
            found[place] = node
    return found


class QuantizeProducts:
    """The pass.

    Args:
        scales: for each product that is to be in 8 bits the scale of its data, and of its residual.
        means: for each product whose bias is corrected the means of its data's channels.
        short: weights become so small that sums fit 16 bits, where they can (`ops.quantization`).
        in_pairs: products stay such of float32, of data and weights that are quantised and dequantised, as ONNX has
            them. `quantized_products` makes products of bytes of these.
    """

    name = "quantize_products"

    def __init__(self, scales: Mapping[str, Scale], means: Mapping[str, Sequence[float]] | None = None,
                 short: bool = False, in_pairs: bool = False) -> None:
        self.scales = scales
        self.means = means or {}
        self.short = short
        self.in_pairs = in_pairs

    def run(self, graph: Graph) -> bool:
        found = products(graph)
        chosen = {node: self.scales[name] for name, node in found.items() if name in self.scales}
        names = {node: name for name, node in found.items()}
        residuals = self._residuals(graph, names, chosen)
        quantized: dict[tuple[Value, Scale], Value] = {}
        nodes: list[Node] = []
        replaced: dict[Value, Value] = {}

        def bytes_of(made: Maker, value: Value, scale: Scale) -> Value:
            if (value, scale) not in quantized:
                quantized[value, scale] = made("quantize", value, *_affine(made, scale))
            return quantized[value, scale]

        for node in graph.nodes:
            if node not in chosen:
                nodes.append(node)
                continue
            made, scale = Maker(node, nodes), chosen[node]
            data, epilogue = bytes_of(made, node.inputs[0], scale), node.epilogue
            residual = epilogue.get("residual")
            if residual in residuals:
                kept = residuals[residual]
                epilogue["residual"] = made("dequantize", bytes_of(made, residual, kept), *_affine(made, kept))
            result = self._product(made, node, data, scale, epilogue, self.means.get(names[node]),
                                   residuals.get(node.outputs[0]))
            replaced.update(zip(node.outputs, result, strict=True))
        graph.nodes = nodes
        graph.replace(replaced)
        return bool(replaced)

    def _residuals(self, graph: Graph, names: Mapping[Node, str], chosen: Mapping[Node, Scale]) -> dict[Value, Scale]:
        """The residuals that are kept in 8 bits, with their scales: that of data, where they are data, too."""
        readers, results = graph.readers(), set(graph.results)
        as_data = {node.inputs[0]: scale for node, scale in chosen.items()}
        found = {}
        for node in chosen:
            value = node.epilogue.get("residual")
            if value is not None:
                scale = as_data.get(value) or self.scales.get(names[node] + RESIDUAL)
                only = all(reader in chosen and reader.op.is_data(at) for reader, at in readers[value])
                if scale is not None and only and value not in results:
                    found[value] = scale
        return found

    def _product(self, made: Maker, node: Node, data: Value, scale: Scale, epilogue: dict[str, Value],
                 means: Sequence[float] | None, kept: Scale | None) -> list[Value]:
        """`kept`: of the result, where it is kept in 8 bits."""
        weights = node.inputs[1]
        axis, inner = weight_axes(node)
        others = tuple(at for at in range(weights.type.rank) if at != axis)
        channels = weights.shape[axis]
        largest = made("maximum", made("reduce_max", made("abs", weights), axes=others),
                       made.constant(np.float32(LEAST_LARGEST)))
        steps = made("multiply", largest, made.constant(np.float32(1 / _LARGEST)))
        short = self.short and weights.shape[inner] % 8 == 0
        if short:
            steps = made("maximum", steps, _short_steps(made, weights, axis, inner))
        addend = epilogue.pop("bias", None) or made.constant(np.zeros(channels, np.float32))
        if self.in_pairs:  # the bias will be an i32 of the sums' scale, also where all weights are tiny
            least = made("multiply", made("abs", addend), made.constant(np.float32(2 ** -_BIAS_BITS / scale.scale)))
            steps = made("maximum", steps, least)
        zero = made.constant(np.zeros(channels, np.int8))
        whole = made("quantize", weights, steps, zero, axis=axis)
        if means is not None:
            addend = made("add", addend, bias_correction(made, node, whole, steps, np.asarray(means)))
        if self.in_pairs:
            second = [epilogue.pop(name) for name in ("scale", "shift") if name in epilogue]
            attrs = {key: value for key, value in node.attrs.items() if key not in ("lower2", "upper2")}
            pair = (made.kept("dequantize", data, *_affine(made, scale)),
                    made.kept("dequantize", whole, steps, zero, axis=axis))
            total = made.kept(node.op.name, *pair, addend, *epilogue.values(), **attrs)
            if not second:
                return [total]
            # What is kept in 8 bits is read so by both, for the sum to become bytes at once.
            read = total if kept is None else made("dequantize", made("quantize", total, *_affine(made, kept)),
                                                   *_affine(made, kept))
            return [total, made("scale_shift", read, *second, lower=node.attrs["lower2"], upper=node.attrs["upper2"])]
        if scale.zero_point:
            sums = made("reduce_sum", made("convert", whole, element="i32"), axes=others)
            bias = made("multiply", sums, made.constant(np.int32(-scale.zero_point)))
        else:
            bias = made.constant(np.zeros(channels, np.int32))
        factor = made("multiply", steps, made.constant(np.float32(scale.scale)))
        attrs = {**node.attrs, "short_sums": short}
        if node.op.kind == "convolution":
            attrs["pad_value"] = scale.zero_point
        product = made(QUANTIZED[node.op.kind], data, whole, bias, factor, addend, *epilogue.values(), **attrs)
        assert product.node is not None
        return product.node.outputs


def _affine(made: Maker, scale: Scale) -> tuple[Value, Value]:
    """Scale and zero point."""
    return made.constant(np.float32(scale.scale)), made.constant(np.uint8(scale.zero_point))


def _short_steps(made: Maker, weights: Value, axis: int, inner: int) -> Value:
    """For each index of `axis` the least step by which the sums of `short_sums` along `inner` stay within bounds."""
    shape = weights.shape
    fours = (*shape[:inner], shape[inner] // 8, 2, 2, 2, *shape[inner + 1:])  # [eights][four][pair][channel]
    kept = axis if axis < inner else axis + 1  # the sums have two axes, eights and pairs, for `inner`
    sums = [made("reduce_sum", made("reshape", made("relu", one), shape=fours), axes=(inner + 1, inner + 3))
            for one in (weights, made("negative", weights))]
    most = [made("reduce_max", each, axes=tuple(at for at in range(each.type.rank) if at != kept)) for each in sums]
    return made("multiply", made("maximum", *most), made.constant(np.float32(1 / SHORT)))


Arrays = Sequence[np.ndarray]


def observed(graph: Graph) -> tuple[Graph, list[list[str]]]:
    """Return a graph that shows, on samples, the data of all products of an optimised graph, and their residuals.

    Returns:
        A copy with these as its results, and for each the names of the products that read it; those that read it as
        residual end in `RESIDUAL`. Data that is a parameter of the graph is among the results, too.
    """
    copy = graph.clone()
    names: dict[Value, list[str]] = {}
    for name, node in products(copy).items():
        names.setdefault(node.inputs[0], []).append(name)
        if "residual" in node.epilogue:
            names.setdefault(node.epilogue["residual"], []).append(name + RESIDUAL)
    copy.results = [value if value.node is not None else _as_made(copy, value) for value in names]
    copy.remove_dead()
    return copy, list(names.values())


def _as_made(graph: Graph, parameter: Value) -> Value:
    node = make_node("identity", [parameter], {})
    graph.nodes.append(node)
    return node.output


def calibrate(names: Sequence[Sequence[str]], run: Callable[[Arrays], Arrays], samples: Iterable[Arrays],
              calibration: Calibration, channels: Channels | None = None) -> None:
    """Observe the data of products for each sample; `run` is the graph of `observed`, `names` what it says of it."""
    for sample in samples:
        for array, readers in zip(run(sample), names, strict=True):
            calibration.observe(readers, array)
            if channels is not None:
                channels.observe(readers, array)
        calibration.count_samples()


def outline_of(graph: Graph) -> Outline:
    """Return the outline of an optimised graph, with the names of its products."""
    return outline(graph, {node: name for name, node in products(graph).items()})


class Fit(NamedTuple):
    """
    Attributes:
        graph: its name.
        recipe: what is for it, by the names of its own layers.
        layers: of the graph, by name: those that can be in 8 bits.
        told: how many layers the whole recipe tells of.
        by_names: the recipe has no outline: whoever makes one tries parts of it.
    """

    graph: str
    recipe: Recipe
    layers: tuple[str, ...]
    told: int
    by_names: bool = False

    @staticmethod
    def of(recipe: Recipe, graph: Graph) -> Fit:
        """For an optimised graph: by the recipe's outline, or where it has none by names."""
        found = products(graph)
        if recipe.outline is None:
            known = {name: name for name in found}
        else:
            pairs = matched(outline_of(graph), recipe.outline)
            known = {theirs: ours for ours, theirs in pairs.items()}
        told = len({*recipe.products, *recipe.kept})
        return Fit(graph.name, recipe.renamed(known), tuple(found), told, recipe.outline is None)

    @property
    def known(self) -> int:
        """How many of the graph's layers the recipe tells of: that they are in 8 bits, or stay in float."""
        return len({*self.recipe.products, *self.recipe.kept})

    @property
    def precision(self) -> str:
        """The precision that the graph is compiled to: `int8`, or `f32` where nothing is in 8 bits."""
        return "int8" if self.recipe.products else "f32"

    def __str__(self) -> str:
        return f"{len(self.recipe.products)} of {len(self.layers)} layers in 8 bits"

    @property
    def shortfall(self) -> str | None:
        """A sentence about the graph's layers that the recipe does not tell of. None where it tells of all, or of some
        by their names."""
        if self.known == len(self.layers) or (self.by_names and self.known):
            return None
        unknown = [name for name in self.layers if name not in {*self.recipe.products, *self.recipe.kept}]
        whole = f"the {len(self.layers)} layers of graph {self.graph} that can be in 8 bits"
        if not self.known:
            return (f"the recipe of quantisation, of {self.told} layers, fits none of {whole}, which run in float32: "
                    f"it is of another model. `quantize` makes one of this")
        return (f"the recipe of quantisation fits {self.known} of {whole}; {listed(unknown)} run in float32, and "
                f"{len(self.recipe.products)} in 8 bits: it is of another model. `quantize` makes one of this")

    def require(self) -> None:
        """Raises CalibrationError where the recipe tells of layers, the graph has some, and none is the same."""
        if self.told and not self.known:
            raise CalibrationError(f"option recipe: {self.shortfall or f'graph {self.graph} has no layer for it'}")
