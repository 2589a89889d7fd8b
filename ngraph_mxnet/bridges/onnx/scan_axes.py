"""What the attributes of a Scan say."""

from __future__ import annotations

from dataclasses import dataclass

from ngraph_mxnet.bridges.onnx.attributes import Attributes
from ngraph_mxnet.errors import ModelError


@dataclass(frozen=True)
class ScanAxes:
    """Along which axis each scanned input is read and each scanned output written, and where that is backwards.

    `is_batched`: opset 8, where all axes are those of one element of a batch.
    """

    in_axes: tuple[int, ...]
    in_back: tuple[int, ...]
    out_axes: tuple[int, ...]
    out_back: tuple[int, ...]
    is_batched: bool


def scan_axes(attrs: Attributes, scanned: int, outputs: int, opset: int) -> ScanAxes:
    """Of a Scan of so many scanned inputs and outputs.

    Raises:
        ModelError: an attribute has another number of entries.
    """
    def entries(name: str, count: int) -> tuple[int, ...]:
        found: tuple[int, ...] = attrs.ints(name, (0,) * count)
        if len(found) != count:
            raise ModelError(f"{name}={found}: expected {count} numbers")
        return found

    if opset < 9:
        return ScanAxes((0,) * scanned, entries("directions", scanned), (0,) * outputs, (0,) * outputs, is_batched=True)
    return ScanAxes(entries("scan_input_axes", scanned), entries("scan_input_directions", scanned),
                    entries("scan_output_axes", outputs), entries("scan_output_directions", outputs), is_batched=False)
