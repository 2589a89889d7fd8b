"""The names of the targets and where their classes are, and what other distributions add to this package's tables.

A distribution brings a target by an entry point of the group `ngraph_mxnet.targets`: its name, and `module:class`. It
may add rules, lowerings, kernels and devices, too. What is kept on disk is found by the content of this package's
files. Nobody knows all the files of what was added, so a process to which something was added finds nothing that
another process kept, and no other finds what it keeps.
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any

_OWN = __name__.partition(".")[0]
_added: list[str] = []
"""The modules that added something, and folders."""


def is_outside(function: Any) -> bool:
    """True if a module of another distribution defines the function. A `partial` counts as the function that it
    wraps."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__module__", _OWN)).partition(".")[0] != _OWN


def note_outside(added: Any) -> None:
    """Whoever fills a table tells of each function, or of the name of a folder with data; a function of this package
    does not count."""
    if isinstance(added, str) or is_outside(added):
        _added.append(added if isinstance(added, str) else added.__module__)


@functools.cache
def this_process() -> str:
    """A word that no other process has."""
    return secrets.token_hex(8)


def outside_build() -> str:
    """Belongs to every key of what is kept on disk: empty unless something was added."""
    return this_process() if _added else ""


GROUP = "ngraph_mxnet.targets"


@dataclass(frozen=True)
class Place:
    """The location of a target, in texts `module:object`. A module is imported when it is first needed.

    `varied`: there are variants, `name:variant`; the class takes the variant's name, empty for the usual one.
    `load`: what `Backend.load` does; `check`: what `Backend.check_options` does; `unlike`: what
    `runtime.backend.unlike` does; `load_file`: what `runtime.backend.load_file` does; each where that needs no
    compiler.
    `origins`: the distributions that bring it, none if it is this package's.
    """

    where: str
    varied: bool = False
    load: str = ""
    check: str = ""
    unlike: str = ""
    load_file: str = ""
    origins: tuple[str, ...] = ()


TARGETS: dict[str, Place] = {
    "CPU": Place("ngraph_mxnet.targets.cpu.backend:CPUBackend", load="ngraph_mxnet.targets.cpu.program.programs:load",
                 check="ngraph_mxnet.targets.cpu.options:check_options",
                 unlike="ngraph_mxnet.targets.cpu.options:unlike",
                 load_file="ngraph_mxnet.targets.cpu.program.compiled_file:load_file"),
    "HYBRID": Place("ngraph_mxnet.targets.hybrid.backend:HybridBackend", varied=True),
    "INTERPRETER": Place("ngraph_mxnet.targets.interpreter:InterpreterBackend"),
    "NNP": Place("ngraph_mxnet.targets.nnp.backend:NNPBackend", varied=True),
    "NNP-IA": Place("ngraph_mxnet.targets.nnp.cores:CoresBackend", varied=True),
}
"""The targets of this package, by name."""

TRAINER = "CPU"
"""The target that compiles training steps and updates, whatever NGRAPH_BACKEND names."""


DRAW_GRAPH = "ngraph_mxnet.tools.debug:to_svg"
"""A graph as a picture, for notebooks."""
PARTS = "ngraph_mxnet.tools.layouts:parts_of"
"""What a terminal and a notebook show of facts."""
BLOCK_WITH_ARRAYS = "ngraph_mxnet.plugin.arrays:with_arrays"
"""A Gluon block as a function of NumPy arrays."""


def loaded(where: str) -> Any:
    """Import `module:name`: a target, or what a lower room calls of a higher one."""
    module, _, name = where.partition(":")
    return attrgetter(name)(importlib.import_module(module))


def find(name: str, variant: str = "") -> Place | None:
    """Return the place of the target called `name`, in capitals; None if there is none. None is returned also if
    `variant` is given and the target has no variants. The class itself refuses variants that it lacks; a target from
    outside may have some."""
    place = TARGETS.get(name) or outside().get(name)
    return None if place is None or (variant and not (place.varied or place.origins)) else place


def known() -> list[str]:
    """The names of all targets."""
    return sorted({**TARGETS, **outside()})


@cache
def outside() -> Mapping[str, Place]:
    """Return the targets that other distributions bring, by name. Nothing of those distributions is imported, and a
    damaged one stops no other."""
    from importlib.metadata import distributions

    found: dict[str, Place] = {}
    seen = set()
    for distribution in distributions():
        try:
            name = f"{distribution.metadata['Name']} {distribution.version}"
            points = [] if distribution.metadata["Name"] in seen else list(distribution.entry_points)
        except Exception as error:
            logging.getLogger("ngraph_mxnet").warning("the metadata of a distribution can't be read, so that backends "
                                                      "that it may bring are not known: %r", error)
            continue
        seen.add(distribution.metadata["Name"])
        for point in points:
            if point.group == GROUP and point.name.upper() in TARGETS:
                logging.getLogger("ngraph_mxnet").warning(
                    "the backend %s of the distribution %s is not used: this package has one of that name", point.name,
                    name)
            elif point.group == GROUP:
                place = found.setdefault(point.name.upper(), Place(point.value))
                found[point.name.upper()] = replace(place, origins=(*place.origins, name))
    return found


def build_of(name: str, devices: object = "") -> str:
    """Return a text that tells one build of the target called `name` from another, for keys of what is kept on disk.
    Such keys need the build of this package, too. `devices`, an option, may name more targets. Nobody knows all files
    of a target from outside, so no other process finds what is kept of it."""
    named = set(re.findall(r"[\w.-]+", f"{name} {devices}".upper()))
    return this_process() if named - TARGETS.keys() and named & outside().keys() else ""
