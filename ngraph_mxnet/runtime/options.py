"""Reading the options of a backend. They come as Python objects, or as text from MXNet and the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.variables import FileSetting

_LONGEST_PATH = 4096


def require_known(backend: str, options: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Refuse options that the backend does not know; `known` maps each name to a line of help.

    Raises:
        ConfigError: naming the unknown ones and the known.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        texts = "; ".join(f"{name}: {text}" for name, text in known.items()) or "none"
        raise ConfigError(f"backend {backend} has no option {', '.join(unknown)}; its options: {texts}")


def file_digests(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the content digests of the files that options name, by option. A compiled graph depends on the contents as
    on the names."""
    return {name: FileSetting.of(value).digest for name, value in sorted(options.items())
            if isinstance(value, str) and len(value) < _LONGEST_PATH and os.path.isfile(value)}


def read_switch(options: Mapping[str, Any], name: str) -> bool | None:
    """An option that is on or off; None where it is not given.

    Raises:
        ConfigError: it is neither.
    """
    value = options.get(name)
    if value is None:
        return None
    if str(value) not in ("0", "1", "False", "True"):
        raise ConfigError(f"option {name}: found {value!r}, expected 0 or 1")
    return str(value) in ("1", "True")


def read_count(options: Mapping[str, Any], name: str, most: int) -> int | None:
    """An option that is a number from 1 to `most`; None where it is not given.

    Raises:
        ConfigError: it is none.
    """
    value = options.get(name)
    if value is None:
        return None
    try:
        count = int(str(value))
    except ValueError:
        count = 0
    if not 1 <= count <= most:
        raise ConfigError(f"option {name}: found {value!r}, expected 1 to {most}")
    return count


def read_samples(options: Mapping[str, Any]) -> tuple[Sequence[np.ndarray], ...]:
    """The option `calibration`: one sample, or a list of samples, each an array for each input; none by default.

    Raises:
        ConfigError: it is something else.
    """
    given = options.get("calibration") or ()
    if isinstance(given, (list, tuple)) and given and all(isinstance(array, np.ndarray) for array in given):
        given = [given]
    for found in (given, *given) if isinstance(given, (list, tuple)) else (given,):
        if not isinstance(found, (list, tuple)):
            raise ConfigError(f"option calibration: found {type(found).__name__}, expected a list of arrays, one for "
                              "each input, or a list of such lists")
    return tuple(given)
