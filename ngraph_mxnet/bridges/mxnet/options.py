"""The options that `optimize_for` and `hybridize` pass through to us, and that a region has as attributes.

`ngraph_backend`, by default NGRAPH_BACKEND, and `ngraph_<option>` for an option of that backend. MXNet's own mean
nothing here, and there are no others. Our wrappers pass `DATA`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.recent import Recent
from ngraph_mxnet.runtime.backend import canonical_name
from ngraph_mxnet.runtime.backend import check_options as check_backend_options
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.options import file_digests

PREFIX = "ngraph_"
_MXNETS_OPTIONS = frozenset({"dedup_subgraph"})
BACKEND = "ngraph_backend"
STRUCTURE = "ngraph_structure"

DATA = "ngraph_data"
"""A JSON list of the model's inputs that are data wherever they are read: no weights, though they stand in a weight's
slot. A region's attribute of that name lists places among its inputs."""


def settings_of(options: Mapping[str, str]) -> str:
    """Return what decides, beside the options, how graphs are compiled: the CPU settings, and digests of the files that
    options name."""
    return f"{config.compile_settings()} {file_digests(options) or ''}".rstrip()


def settings_key(structure: str, options: Mapping[str, str]) -> str:
    """Return what a compiled region depends on, beside shapes, types and options: its structure and `settings_of`."""
    return f"{structure} {settings_of(options)}"


def chosen_backend(options: Mapping[str, str]) -> str:
    """The name of the backend that the options ask for, or the environment.

    Raises:
        ConfigError: there is no such backend.
    """
    return canonical_name(options.get(BACKEND) or config.get("NGRAPH_BACKEND"))


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options of `optimize_for` and `hybridize` that are neither MXNet's own nor the chosen backend's.

    Raises:
        ConfigError: an option is unknown, or its value not allowed.
    """
    if not options:
        return
    try:
        backend = chosen_backend({BACKEND: str(options[BACKEND])} if BACKEND in options else {})
        check_backend_options(backend, {})
    except ConfigError:
        if BACKEND in options:
            raise
        return  # it is the environment's, and told when something is to be compiled
    own = {name.removeprefix(PREFIX): value for name, value in own_options(options).items()
           if name not in (BACKEND, DATA)}
    others = sorted(name for name in options if not name.startswith(PREFIX) and name not in _MXNETS_OPTIONS)
    try:
        check_backend_options(backend, {**own, **dict.fromkeys(others)})
    except ConfigError as error:
        raise ConfigError(f"{error}. Here names begin with {PREFIX}, and {BACKEND} chooses the backend") from None
    if others:
        raise ConfigError(f"found the option {others[0]}, expected {PREFIX}{others[0]}")


def own_options(options: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in options.items() if key.startswith(PREFIX)}


def backend_options(attrs: Mapping[str, str]) -> dict[str, Any]:
    """A region's options for its backend, by the backend's names."""
    return {name.removeprefix(PREFIX): value for name, value in own_options(attrs).items()
            if name not in (BACKEND, STRUCTURE, DATA)}


_told = Recent(1024)


def remember(subgraph_json: str, attrs: Mapping[str, str], precision: str) -> None:
    """`precision`: as text for people."""
    _told.put(_key(subgraph_json, attrs), precision)


def told_of(executable: Executable) -> str:
    """The precision of convolutions and matrix products; with a recipe, how many are in 8 bits."""
    return f"{executable.precision}, {executable.quantised}" if executable.quantised else executable.precision


def precision_of(subgraph_json: str, attrs: Mapping[str, str]) -> str:
    """Return the precision that was remembered of the region, or an empty text if none was."""
    found: str = _told.get(_key(subgraph_json, attrs)) or ""
    return found


def _key(subgraph_json: str, attrs: Mapping[str, str]) -> Any:
    return subgraph_json, tuple(sorted(attrs.items()))
