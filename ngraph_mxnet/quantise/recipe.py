"""Which products of a model are in 8 bits, with which scales of their data, and which stay in float, and why: what a
compilation needs, in memory and as a file of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngraph_mxnet.errors import CalibrationError
from ngraph_mxnet.package.files import new_file
from ngraph_mxnet.quantise.calibration import Calibration
from ngraph_mxnet.quantise.scales import affine

FORMAT, VERSION = "ngraph_mxnet recipe", 1
METHOD = "mse"
"""How ranges are chosen where nobody says."""
RESIDUAL = " residual"
"""What the name of a product's residual ends in, behind the product's."""
_ZIP = b"PK"


@dataclass(frozen=True)
class Scale:
    """Of u8: a real number is (q - zero point) * scale."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class Recipe:
    """
    Attributes:
        scales: of the data of each product that is in 8 bits, by the product's name (`products.products`), and of its
            residual.
        kept: the products that stay in float, with the reason.
        method: of `METHODS`, by which the scales were chosen.
    """

    scales: Mapping[str, Scale]
    kept: Mapping[str, str] = field(default_factory=dict)
    method: str = METHOD

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
            scale, zero_point = affine(*calibration.range(name, method), "u8")
            scales[name] = Scale(float(scale), zero_point)
        return Recipe(scales, kept, method)

    def keeping(self, kept: Mapping[str, str]) -> Recipe:
        """This one, with more products that stay in float."""
        left = {name: scale for name, scale in self.scales.items() if name.removesuffix(RESIDUAL) not in kept}
        return Recipe(left, {**self.kept, **kept}, self.method)

    @property
    def products(self) -> list[str]:
        """The names of those in 8 bits."""
        return [name for name in self.scales if not name.endswith(RESIDUAL)]

    def alone(self, product: str) -> Recipe:
        """This one with a single product, and its residual, in 8 bits."""
        scales = {name: scale for name, scale in self.scales.items() if name.removesuffix(RESIDUAL) == product}
        return Recipe(scales, self.kept, self.method)

    def text(self) -> str:
        """As JSON, the same for equal ones."""
        scales = {name: [scale.scale, scale.zero_point] for name, scale in self.scales.items()}
        return json.dumps({"format": FORMAT, "version": VERSION, "method": self.method, "scales": scales,
                           "kept": dict(self.kept)}, indent=1)

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
        if found.get("version") != VERSION:
            raise CalibrationError(f"{where}: found version {found.get('version')!r} of recipes, expected {VERSION}")
        scales, kept, method = found.get("scales"), found.get("kept"), found.get("method")
        if not (isinstance(scales, dict) and all(map(_is_scale, scales.values())) and isinstance(method, str)
                and isinstance(kept, dict) and all(isinstance(reason, str) for reason in kept.values())):
            raise CalibrationError(f"{where}: found a recipe whose scales, kept or method are none")
        return Recipe({name: Scale(*pair) for name, pair in scales.items()}, kept, method)

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


def _is_scale(pair: Any) -> bool:
    if not (isinstance(pair, list) and len(pair) == 2):
        return False
    scale, zero_point = pair
    return (isinstance(scale, float | int) and math.isfinite(scale) and scale > 0 and isinstance(zero_point, int)
            and 0 <= zero_point <= 255)
