"""Which products of a model are in 8 bits, with which scales of their data, and which stay in float, and why: what a
compilation needs, in memory and as a file of JSON."""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.errors import CalibrationError, listed
from ngraph_mxnet.package.files import new_file
from ngraph_mxnet.quantisation.calibration import Calibration
from ngraph_mxnet.quantisation.choose import LEAST_SCALE, affine
from ngraph_mxnet.quantisation.corrections import BIAS, CORRECTIONS, DIVIDING
from ngraph_mxnet.quantisation.layers import Outline

FORMAT, VERSION = "ngraph_mxnet recipe", 3
"""Versions 1 and 2 tell layers by their names alone, which nothing is compiled by (`targets/cpu/options.py`)."""
METHOD = "mse"
"""How ranges are chosen where nobody says."""
RESIDUAL = " residual"
"""The ending that makes a product's name the name of its residual."""
_ZIP = b"PK"


Numbers = tuple[float, ...]
"""Numbers of float32, one for each input channel of a product."""


@dataclass(frozen=True)
class Scale:
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
        """All products of which something was seen, but those that are kept in float.

        Raises:
            ConfigError: there is no such method.
        """
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
        """The names of those in 8 bits."""
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
        """This one, where the data of these products is divided, too; `divided` has seen it so.

        Raises:
            CalibrationError: nothing was seen of it.
        """
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
