"""Backends that tests make for themselves, and register as anybody would."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ngraph_mxnet.program.backend import Backend, register_backend, remove_backend

NAME = "OWN"


class Classes:
    """The classes of `own_backend`, where the registry finds them."""


@contextmanager
def registered(name: str, where: str, *, varied: bool = False) -> Iterator[None]:
    """There is this backend, as of `register_backend`."""
    register_backend(name, where, varied=varied)
    try:
        yield
    finally:
        remove_backend(name)


@contextmanager
def own_backend(base: type[Backend], name: str = NAME, **members: Any) -> Iterator[None]:
    """There is a backend called `name`, like `base` but for these members of its class."""
    setattr(Classes, name, type(name, (base,), {"name": name, **members}))
    try:
        with registered(name, f"{__name__}:Classes.{name}"):
            yield
    finally:
        delattr(Classes, name)
