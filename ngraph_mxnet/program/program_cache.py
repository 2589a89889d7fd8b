"""The cache of compiled programs on disk: by a key, so that a hit needs no importer, no pass and no compiler.

A key names the graph as its framework has it: finding the fingerprint of its IR would take the importer. An entry is
plain data (`package.package.pack`): facts, and the package of each program. It only names arrays of the caller. Large
arrays that passes made of those (a convolution's with the batch norm behind it) are entries of their own, named
by their content: the programs for all shapes share them. Nothing is looked up or kept while calls are traced or
audited, for both want to see how programs are made.

In the process, programs belong to whoever calls them. Those of MXNet's regions are in a cache of C++
(csrc/mxnet/compile_cache.h), those for ranges of sizes in `ranges.RangePrograms`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ngraph_mxnet.base import config
from ngraph_mxnet.base.errors import PackageError
from ngraph_mxnet.base.registry import build_of
from ngraph_mxnet.ir.sizes import Binding
from ngraph_mxnet.program.audit import active
from ngraph_mxnet.program.backend import file_digests, load, load_template
from ngraph_mxnet.program.cache import Place, cpu_features, open_store, place_for
from ngraph_mxnet.program.package import Package, content_key, hash_key_bytes, pack, unpack
from ngraph_mxnet.program.ranges import MOST_RANGES
from ngraph_mxnet.program.trace import recorder, span

logger = config.logger(__name__)

_CONSTANT = "constant"
"""The kind of entry of an array that a pass made."""


@dataclass(frozen=True)
class Made:
    """Executables or templates that belong together, with facts, which are plain data of JSON.

    `weights`: arrays that whoever loads the programs has, too, by name. Without them the entry holds all arrays.
    """

    programs: Sequence[Any]
    facts: dict[str, Any] = field(default_factory=dict)
    weights: Mapping[str, np.ndarray] | None = None


Maybe = TypeVar("Maybe", bound="Made | None")


def program_key(what: object, backend: str, options: Mapping[str, Any]) -> str:
    """All that compiled programs depend on, as text; `cache.place_for` adds the build of this package.

    Args:
        what: names the graph and its sizes. Its `repr`, like that of an option, tells it from any other.
    """
    return repr((what, backend, build_of(backend, options.get("devices", "")), sorted(options.items()),
                 file_digests(options), config.compile_settings(), cpu_features()))


def get_or_make(key: Callable[[], str | None], make: Callable[[], Maybe], *, hint: Binding | None = None,
                small: bool = False, weights: Callable[[], Mapping[str, np.ndarray]] = dict) -> Made | Maybe:
    """The programs of an entry, else those that `make` gives, which become one.

    Args:
        key: a `program_key`; None where nothing may be kept. It is asked for where there is a folder.
        make: None: nothing is kept.
        hint: the values of symbols. The programs are then templates that hold for these sizes. Several entries with
            one key differ in their guards.
        small: making takes no time.
        weights: gives the arrays that an entry only names.
    """
    free: Place | None = None
    for place in () if recorder() or active() else _places(key, hint, small):
        content = place.get()
        if content is None:
            free = place
            break
        try:
            with span("load", "compile"):
                found = _decoded(content, hint, weights)
            if found is not None:
                return found
        except _GoneError as error:
            logger.info("a cached program is compiled anew: %s", error)
            free = place
            break
        except Exception as error:  # whatever is in the folder, the model runs
            logger.warning("a cached program does not load, it is compiled anew: %r", error)
            free = place
            break
    made = make()
    if made is None:
        return made
    if free is not None:
        try:
            free.put(_encoded(made))
        except PackageError as error:
            logger.info("not cached: %s", error)
    return replace(made, facts=json.loads(json.dumps(made.facts)))


class _GoneError(Exception):
    """The folder had no room for all arrays of a program."""


def _places(key: Callable[[], str | None], hint: Binding | None, small: bool) -> Iterator[Place]:
    """The places of the entries for a key, in the order in which they were made."""
    text = key() if open_store() is not None else None
    if text is not None:
        numbered = [("program", text)] if hint is None else [("template", f"{text} {n}") for n in range(MOST_RANGES)]
        yield from filter(None, (place_for(kind, whole, small=small) for kind, whole in numbered))


def _encoded(made: Made) -> bytes:
    """Raises PackageError: a program can't be kept; the text says why."""
    plain = [program.package().plain() for program in made.programs]
    put = _constants() if made.weights is not None else None
    return b"".join(pack({"facts": made.facts, "programs": plain}, made.weights, put))


def _decoded(content: bytes, hint: Binding | None, weights: Callable[[], Mapping[str, np.ndarray]]) -> Made | None:
    """None where a guard does not hold."""
    found = unpack(content, 0, weights(), _constant)
    packages = [Package.from_plain(plain) for plain in found["programs"]]
    if hint is None:
        return Made([load(package) for package in packages], found["facts"])
    if not all(package.holds(hint) for package in packages):
        return None
    return Made([load_template(package) for package in packages], found["facts"])


def _constants() -> Callable[[np.ndarray], str] | None:
    """What makes entries of arrays, each once, and returns their names; None where nothing is kept."""
    store, there = open_store(), set[str]()
    secret = store.derived_key(_CONSTANT, hash_key_bytes()) if store is not None else None
    if store is None or secret is None:
        return None

    def put(array: np.ndarray) -> str:
        _, size, digest = content_key(array, secret)
        name = f"{size} {digest.hex()}"
        if name not in there:
            there.add(name)
            store.put(_CONSTANT, name, array.tobytes())
        return name

    return put


def _constant(name: str) -> bytes:
    store = open_store()
    content = store.get(_CONSTANT, name) if store is not None else None
    if content is None:
        raise _GoneError(f"the folder has no {_CONSTANT} {name}")
    return content
