"""The errors that this package raises on purpose.

Each message says where (node and framework name), what was found, what was expected and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Real
from os import PathLike
from typing import Any


class NGraphError(Exception):
    """Base of all errors of this package."""


class TypeRuleError(NGraphError):
    """Operand types or attributes do not fit an op."""


class GraphError(NGraphError):
    """A graph, or a module of graphs, is malformed: found by the verifier or the parser."""


class UnsupportedError(NGraphError):
    """A valid construct that this package or the chosen backend does not support; the text is the reason."""


class BrokenPromiseError(NGraphError):
    """A defect of this package: what was planned for a graph is not what its kernels do. The text names the nodes."""


class ConfigError(NGraphError):
    """An environment variable or an option has a value that is not allowed."""


class ModelError(NGraphError):
    """A framework's model file is corrupt or inconsistent."""


class CalibrationError(NGraphError):
    """A file of calibration can't be read, or two of them are not of one model."""


class AuditError(NGraphError):
    """A node gave numbers out of the bounds of an audit; or its records can't be read, or have nothing in common."""


class PackageError(NGraphError):
    """A compiled model can't be packed, or a package can't be read: damaged, foreign, or not for this machine."""


class DistributedError(NGraphError):
    """Processes of a job can't work together: one has failed, left or is silent, they differ, or there is no MPI."""


def unreadable(path: object, error: Exception) -> ModelError:
    """The error for a model's file that can't be read, or is no text."""
    return ModelError(f"can't read {path}: {getattr(error, 'strerror', None) or error}")


_BY_INPUT = {"shapes": "{'data': (1, 3, 224, 224)}", "dtypes": "{'data': 'float32'}", "axes": "{'data': (0, 2)}"}
"""Examples of arguments that have an entry for each input."""
_LISTS = {"isas": "['avx2', 'baseline']", "keep": "['conv0']", "corrections": "['bias']",
          "results": "['fc1_output']"}


def no_result(name: str, known: Iterable[str]) -> ModelError:
    """The error of a model that has no value of this name, beside those that it has."""
    return ModelError(f"no result is called {name}; there are {listed(known, name)}")


def require_forms(**arguments: Any) -> None:
    """Refuse an argument without the form that its name asks for: entries by the inputs' names, texts by name, a list
    of names, and else a number. None fits always. Raises ConfigError."""
    for name, value in arguments.items():
        if name in _BY_INPUT:
            fits = hasattr(value, "items") and (name == "dtypes" or not any(
                isinstance(one, str) or not hasattr(one, "__len__") for one in value.values()))
            expected = f"a dict by the inputs' names, as {name}={_BY_INPUT[name]}"
        elif name == "metadata":
            fits, expected = hasattr(value, "items"), "a dict of texts, as metadata={'version': '3'}"
        elif name in _LISTS:
            fits, expected = not isinstance(value, str) and hasattr(value, "__iter__"), f"a list, as {_LISTS[name]}"
        else:
            fits, expected = isinstance(value, Real), "a number"
        if value is not None and not fits:
            raise ConfigError(f"{name}: found {value!r:.80}, expected {expected}")


def only_params(params: Any, weights: Any) -> Any:
    """A model's parameters, of which `weights` is the older name. Raises ConfigError: they are given twice, or are
    neither arrays by name nor a file."""
    if params is not None and weights is not None:
        raise ConfigError("params= and weights= are two names of one argument: give params= alone")
    found = weights if params is None else params
    if found is not None and not (hasattr(found, "items") or isinstance(found, (str, PathLike))):
        raise ConfigError(f"params: found {found!r:.80}, expected arrays by name, or the path of a .params file")
    return found


def listed(names: Iterable[str], near: str = "", most: int = 8) -> str:
    """At most `most` names for a message, those most like `near` first, and how many more there are."""
    ordered = list(dict.fromkeys(names))
    if near:
        ordered.sort(key=lambda name: -difflib.SequenceMatcher(None, name, near).ratio())
    shown = ", ".join(ordered[:most])
    return f"{shown} and {len(ordered) - most} more" if len(ordered) > most else shown
