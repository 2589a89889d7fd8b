"""Templates that are kept from process to process, so that shapes which change are not compiled for anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from ngraph_mxnet import config
from ngraph_mxnet.auditing.audit import active
from ngraph_mxnet.errors import PackageError
from ngraph_mxnet.runtime.changing import MOST_RANGES
from ngraph_mxnet.runtime.ranges import Template
from ngraph_mxnet.runtime.trace import recorder, span

logger = config.logger(__name__)


class Place(Protocol):
    """The place where the content of an entry is kept, or may be kept; `cache.Place` is one."""

    def get(self) -> bytes | None: ...

    def put(self, content: bytes | None) -> None: ...


class Package(Protocol):
    """A template as plain data."""

    def holds(self, binding: Mapping[str, int]) -> bool: ...


Held = TypeVar("Held", bound=Package)
Made = TypeVar("Made", bound=Template)


def kept_template(place_of: Callable[[int], Place | None], hint: Mapping[str, int], make: Callable[[], Made | None],
                  encode: Callable[[Made], bytes | None], decode: Callable[[bytes], Held],
                  load: Callable[[Held], Made]) -> Made | None:
    """A template that was kept and holds for these sizes, else what `make` gives, which is kept.

    Args:
        place_of: the place of the template that is numbered so, from 0, among those that are alike but for their
            guards; its key holds all that these depend on beside the sizes that they were compiled for.
        hint: the symbols' values now.
        encode, decode: to what a place keeps, and back to the package.
        load: makes the template of it. Whatever these two raise, the template is made anew.
    """
    free: Place | None = None
    for number in range(0 if recorder() or active() else MOST_RANGES):
        place = place_of(number)
        content = place.get() if place is not None else None
        if content is None:
            free = place
            break
        try:
            with span("load", "compile"):
                package = decode(content)
                if package.holds(hint):
                    return load(package)
        except Exception as error:  # whatever is in the folder, the model runs
            logger.warning("a kept program for a range of sizes does not load, it is compiled anew: %r", error)
            free = place
            break
    template = make()
    if template is not None and free is not None:
        try:
            free.put(encode(template))
        except PackageError as error:
            logger.info("not kept: %s", error)
    return template
