"""Programs that the folder keeps from process to process, with what was found out when they were made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.auditing.audit import active
from ngraph_mxnet.cache import place_for
from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.package import Package
from ngraph_mxnet.package.pack import pack, unpack
from ngraph_mxnet.package.template_package import TemplatePackage
from ngraph_mxnet.runtime.backend import load, load_template
from ngraph_mxnet.runtime.executable import Executable
from ngraph_mxnet.runtime.kept_templates import kept_template
from ngraph_mxnet.runtime.ranges import Template
from ngraph_mxnet.runtime.trace import recorder, span

logger = config.logger("ngraph_mxnet")

Made = tuple[dict[str, Any], list[Executable]]
"""Facts, which are plain data of JSON, and programs."""


def kept_or_made(key: str, make: Callable[[], Made], *, small: bool) -> Made:
    """What `make` gives, made once for `key`, which holds all that it depends on.

    Args:
        small: making takes no time.
    """
    place = None if recorder() or active() else place_for("program", key, small=small)
    content = place.get() if place is not None else None
    if content is not None:
        try:
            with span("load", "compile"):
                found = unpack(content)
                return found["facts"], [load(Package.from_bytes(each.tobytes())) for each in found["programs"]]
        except Exception as error:  # whatever is in the folder, the model runs
            logger.warning("a kept program does not load, it is compiled anew: %r", error)
    facts, programs = make()
    if place is not None:
        place.put(_packed(facts, programs))
    return json.loads(json.dumps(facts)), programs


def kept_or_made_template(key: str, hint: Mapping[str, int], make: Callable[[], Template | None], *, small: bool,
                          decode: Callable[[bytes], Any] = TemplatePackage.from_bytes,
                          load: Callable[[Any], Template] = load_template) -> Template | None:
    """The template that was kept for `key` and holds for these sizes, else what `make` gives, which is kept.

    Args:
        key: holds all that it depends on, beside the sizes that it is compiled for.
        small: making takes no time.
        decode, load: as of `kept_template`.
    """
    return kept_template(lambda number: place_for("template", f"{key} {number}", small=small), hint, make,
                         lambda template: bytes(template.package().to_bytes()), decode, load)


def _packed(facts: dict[str, Any], programs: list[Executable]) -> bytes | None:
    try:
        packages = [np.frombuffer(program.package().to_bytes(), np.uint8) for program in programs]
        return b"".join(pack({"facts": facts, "programs": packages}))
    except PackageError as error:
        logger.info("not kept: %s", error)
        return None


_SMALL_NODES = 16


def is_small(symbol_json: str) -> bool:
    """Whether a graph has so few nodes, variables too, that nothing that is found out of it takes long.

    Counted in the text: a region that is on disk is loaded without its JSON being parsed. Graphs within nodes count.
    """
    return symbol_json.count('"op"') <= _SMALL_NODES
