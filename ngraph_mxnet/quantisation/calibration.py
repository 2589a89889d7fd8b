"""Statistics of a model's values on samples: a histogram for each name, in memory and as a file.

A file is NumPy's npz (a zip of arrays, read without pickle), of these arrays for n values:

* `meta`: uint8, JSON in UTF-8: `format`, `version`, `fingerprint` (null if not given), `samples`, `names` (n strings).
* `counts`: float64[n, 2, 2048], what `Histogram` has as `negative` and `positive`.
* `exponents`: int16[n], NONE where there is none yet.
* `ends`: float64[n, 2], `least` and `greatest`. `zeros`: float64[n]. `nonfinite`: int64[n].
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet.errors import CalibrationError, listed
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.package.files import new_file
from ngraph_mxnet.quantisation.choose import Range, choose, choose_symmetric
from ngraph_mxnet.quantisation.observe import BINS, LEAST_EXPONENT, MOST_EXPONENT, Histogram

FORMAT, VERSION = "ngraph_mxnet calibration", 1
NONE = -32768
_ARRAYS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "counts": ("float64", (2, BINS)), "exponents": ("int16", ()), "ends": ("float64", (2,)), "zeros": ("float64", ()),
    "nonfinite": ("int64", ()),
}
"""The dtype of each array beside `meta`, and its shape for one value."""


class Calibration(Mapping[str, Histogram]):
    """Histograms by the names of values. Several threads may observe, merge and choose ranges at once; a histogram that
    is taken out by its name goes on counting what they observe.

    Attributes:
        fingerprint: of the graph whose values these are (`ir/graph.py`); None where it was not given.
        samples: how many the model ran on, as far as `count_samples` was told.
    """

    def __init__(self, fingerprint: str | None = None) -> None:
        self.fingerprint = fingerprint
        self.samples = 0
        self._histograms: dict[str, Histogram] = {}
        self._lock = ForkSafeLock()

    def __getitem__(self, name: str) -> Histogram:
        return self._histograms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._histograms))

    def __len__(self) -> int:
        return len(self._histograms)

    def observe(self, names: str | Iterable[str], array: np.ndarray) -> None:
        """Count the elements of an array, of any shape and real dtype, as numbers of the value of that name, or of each
        of these names.

        Raises:
            UnsupportedError: its elements are not real numbers.
        """
        part = Histogram()
        part.add(array)
        with self._lock:
            for name in [names] if isinstance(names, str) else names:
                self._histograms.setdefault(name, Histogram()).merge(part)

    def count_samples(self, samples: int = 1) -> None:
        """The model ran on so many more samples."""
        with self._lock:
            self.samples += samples

    def merge(self, other: Calibration) -> None:
        """Count what `other` has seen, which stays as it is: of the same model on other samples.

        Raises:
            CalibrationError: both have a fingerprint, and not the same.
        """
        with other._lock:  # never both locks at once: two threads may merge two of them into each other
            samples, fingerprint = other.samples, other.fingerprint
            parts = {name: _copy(histogram) for name, histogram in other._histograms.items()}
        with self._lock:
            if fingerprint is not None and self.fingerprint not in (None, fingerprint):
                raise CalibrationError(
                    f"found calibrations of two models to merge: of the graph {fingerprint} and of {self.fingerprint}"
                )
            self.fingerprint = fingerprint if self.fingerprint is None else self.fingerprint
            self.samples += samples
            for name, part in parts.items():
                self._histograms.setdefault(name, Histogram()).merge(part)

    def range(self, name: str, method: str, levels: int = 256, *, symmetric: bool = False) -> Range:
        """The range that a method of `METHODS` chooses for a value: (low, high), low <= 0 <= high.

        Args:
            levels: how many integers it is divided for: 256 for u8 and i8.
            symmetric: of magnitudes, divided for half the levels: the range is (-high, high).

        Raises:
            CalibrationError: nothing was seen of the value.
            ConfigError: there is no such method, or number of levels.
        """
        with self._lock:
            if name not in self._histograms:
                raise CalibrationError(f"found no value {name!r} to choose a range for; seen were "
                                       f"{listed(self._histograms, name) or 'none'}")
            histogram = _copy(self._histograms[name])
        if not symmetric:
            return choose(histogram, method, levels)
        high = choose_symmetric(histogram, method, levels)
        return -high, high

    def save(self, path: str | Path) -> None:
        """Write it as one file, which appears whole or not at all. Raises OSError where it can't be written."""
        with self._lock:
            meta = {"format": FORMAT, "version": VERSION, "fingerprint": self.fingerprint, "samples": self.samples,
                    "names": list(self._histograms)}
            arrays = _arrays([_copy(each) for each in self._histograms.values()])
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        with new_file(path) as file:
            np.savez_compressed(file, meta=text, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a file that `save` wrote.

        Raises:
            CalibrationError: it is damaged, something else, or of a version that this package does not read.
            OSError: it can't be read.
        """
        content = Path(path).read_bytes()
        try:
            with zipfile.ZipFile(BytesIO(content)) as archive:
                meta = _read_meta(path, archive)
                arrays = {name: _read_array(path, archive, name, len(meta["names"])) for name in _ARRAYS}
        # What zipfile and NumPy raise for bytes that they can't take.
        except (ValueError, EOFError, KeyError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise CalibrationError(f"can't read {path} as a file of calibration, it is damaged or something else: "
                                   f"{error}") from None
        found = cls(meta["fingerprint"])
        found.samples = meta["samples"]
        for at, name in enumerate(meta["names"]):
            found._histograms[name] = _histogram(path, name, {key: array[at] for key, array in arrays.items()})
        return found


def _copy(histogram: Histogram) -> Histogram:
    copy = Histogram()
    copy.merge(histogram)
    return copy


def _arrays(histograms: list[Histogram]) -> dict[str, np.ndarray]:
    """The arrays of a file."""
    table = {
        "counts": [(each.negative, each.positive) for each in histograms],
        "exponents": [NONE if each.exponent is None else each.exponent for each in histograms],
        "ends": [(each.least, each.greatest) for each in histograms],
        "zeros": [each.zeros for each in histograms],
        "nonfinite": [each.nonfinite for each in histograms],
    }
    return {name: np.array(table[name], dtype).reshape(-1, *shape) for name, (dtype, shape) in _ARRAYS.items()}


def _read_meta(path: str | Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    """The content of `meta`, checked."""
    meta = json.loads(_read(archive, "meta").tobytes())
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise CalibrationError(f"found {path} to be something else than a file of calibration")
    if meta.get("version") != VERSION:
        raise CalibrationError(f"found version {meta.get('version')!r} of calibration in {path}, expected {VERSION}: "
                               "write it anew, or read it with the package that wrote it")
    names, samples, fingerprint = meta.get("names"), meta.get("samples"), meta.get("fingerprint")
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
            and isinstance(samples, int) and samples >= 0 and isinstance(fingerprint, str | None)):
        raise CalibrationError(f"found names, samples or fingerprint in {path} that are none: it is damaged")
    return meta


def _read_array(path: str | Path, archive: zipfile.ZipFile, name: str, values: int) -> np.ndarray:
    dtype, shape = _ARRAYS[name]
    array = _read(archive, name)
    if array.dtype != dtype or array.shape != (values, *shape):
        raise CalibrationError(f"found {name} to be {array.dtype}{list(array.shape)} in {path}, expected "
                               f"{dtype}{[values, *shape]}: it is damaged")
    return array


def _read(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of a file. All of its bytes are read before any is looked at, so that the zip's checksum holds."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise zipfile.BadZipFile(f"{name} is compressed in a way that NumPy does not use")
    return np.lib.format.read_array(BytesIO(archive.read(info)), allow_pickle=False)


def _histogram(path: str | Path, name: str, arrays: Mapping[str, np.ndarray]) -> Histogram:
    """The histogram of the value `name`, of its rows of a file's arrays."""
    found = Histogram()
    found.negative, found.positive = arrays["counts"].copy()
    exponent = int(arrays["exponents"])
    found.exponent = None if exponent == NONE else exponent
    found.least, found.greatest = arrays["ends"].tolist()
    found.zeros, found.nonfinite = float(arrays["zeros"]), int(arrays["nonfinite"])
    counted, largest = bool(arrays["counts"].any()), found.largest
    is_consistent = (
        all(np.isfinite(each).all() and (each >= 0).all() for each in (arrays["counts"], arrays["zeros"]))
        and found.nonfinite >= 0
        and counted == (found.exponent is not None)
        and found.is_finite == (counted or found.zeros > 0)
        and (not counted or LEAST_EXPONENT <= exponent <= MOST_EXPONENT)
        and (largest < math.ldexp(1, exponent) if counted else largest == 0)
    )
    if not is_consistent:
        raise CalibrationError(f"found a histogram of the value {name!r} in {path} that is none: it is damaged")
    return found
