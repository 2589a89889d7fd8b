"""Checks of what the environment sets, and of the folder on disk that processes share."""

from __future__ import annotations

import difflib
import os
from typing import Any

from ngraph_mxnet import config
from ngraph_mxnet.cache.folder import UnsafeError, opened_folder
from ngraph_mxnet.cache.store import Store, wanted_folder
from ngraph_mxnet.doctor.finding import Finding
from ngraph_mxnet.environment import settings_in
from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet_autoload.names import BACKEND, MXNET_BACKENDS, VARIABLE

_MATTER_MOST = (VARIABLE, "OMP_NUM_THREADS")
_NEARLY = 0.9
"""How alike a name must be to one of these to count as misspelt: MXNet and OpenMP have many."""


def settings() -> Finding:
    """Of `os.environ`."""
    facts: dict[str, Any] = {}
    problems, notes = [], []
    for name, value in settings_in(os.environ).items():
        variable = config.VARIABLES.get(name)
        facts[name] = {"value": value, "effect": variable.help} if variable else {"value": value}
        try:
            if variable is not None:
                variable.checked()
        except ConfigError as error:
            problems.append(str(error))
        if name not in config.VARIABLES:
            meant = difflib.get_close_matches(name, _MATTER_MOST, 1, _NEARLY)
            if meant and name not in _MATTER_MOST:
                problems.append(f"{name} is set, and nothing reads it: did you mean {meant[0]}?")
    for name, near in config.unknown().items():
        if near is not None:
            problems.append(f"{name} is set, and nothing reads it: did you mean {near}?")
        else:
            notes.append(f"{name} is set, and nothing of this package reads it")
    problem, note = _of_mxnet(os.environ.get(VARIABLE, ""))
    problems += [problem] if problem else []
    notes += [note] if note else []
    return Finding("settings", facts, tuple(problems), (*notes, *_notices()))


def _of_mxnet(value: str) -> tuple[str, str]:
    """What is wrong with the variable that names MXNet's backend, and what is worth knowing of it."""
    if value.upper() == BACKEND:
        return "", ""
    if not value:
        return "", f"{VARIABLE} is not set: a script runs compiled only if it names the backend {BACKEND} itself"
    if value in MXNET_BACKENDS:
        return "", f"{VARIABLE}={value}: MXNet runs models without {BACKEND}"
    return f"{VARIABLE}={value}: MXNet has no such backend, expected {BACKEND}, {', '.join(MXNET_BACKENDS)}", ""


def _notices() -> list[str]:
    from ngraph_mxnet.runtime.backend import get_backend

    try:
        return get_backend(config.get("NGRAPH_BACKEND")).notices()
    except ConfigError:
        return []  # the processor's check says so


def cache() -> Finding:
    """Whether an entry can be kept in the folder and had again."""
    try:
        root = wanted_folder()
    except RuntimeError as error:
        return Finding("cache", problems=(f"nothing is kept on disk: {error}; NGRAPH_CACHE_DIR may name a folder",))
    if root is None:
        return Finding("cache", {"folder": "off"}, notes=("nothing is kept on disk (NGRAPH_CACHE_DIR=off): every "
                                                          "process compiles its models anew",))
    store = Store(root, config.get("NGRAPH_CACHE_MB") << 20)
    facts: dict[str, Any] = {"folder": str(root), "limit in MiB": store.limit >> 20}
    try:
        with opened_folder(root, make=True):
            pass
    except UnsafeError as error:
        return Finding("cache", {**facts, "trusted": False}, (f"the folder is not used: {error}",))
    except OSError as error:
        return Finding("cache", facts, (f"nothing is kept in the folder: {root}: {error.strerror or error}; "
                                        "NGRAPH_CACHE_DIR may name another",))
    entries = store.entries()
    facts |= {"trusted": True, "entries": len(entries),
              "size in MiB": round(sum(entry.bytes for entry in entries) / 2**20, 1)}
    content = b"what doctor keeps"
    if not store.put("doctor", "trial", content) or store.get("doctor", "trial") != content:
        return Finding("cache", {**facts, "writable": False}, (
            f"what is kept in {root} can't be read again: every process compiles its models anew; see that you may "
            "write there and that the disk is not full, or set NGRAPH_CACHE_DIR",))
    return Finding("cache", {**facts, "writable": True})
