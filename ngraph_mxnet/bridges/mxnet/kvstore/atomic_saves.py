"""MXNet's files of parameters, symbols and optimizer states appear whole or not at all: a process that ends while it
writes a checkpoint leaves the one before.

Cases:
* what libmxnet writes by name (`mx.nd.save`, `npx.save`, `Symbol.save`, and so `save_parameters`, `export`,
  `save_checkpoint`): it writes a file beside, which then takes the place;
* what Python writes (`Trainer.save_states`, `Module.save_optimizer_states`): the same;
* what is no file of a folder that can be written to: MXNet's own way. So are URIs, stdin and stdout, devices.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from mxnet.base import _LIB
from mxnet.gluon import Trainer
from mxnet.module import Module

from ngraph_mxnet.package.files import replacement

_Save = Callable[..., Any]

_NATIVE = {"MXNDArraySave": 0, "MXSymbolSaveToFile": 1}
"""Functions of libmxnet, and which of their arguments is the file's name."""
_METHODS = ((Trainer, "save_states"), (Module, "save_optimizer_states"))
_stock: dict[tuple[Any, str], _Save] = {}
"""The functions that are replaced now, by owner and name."""


class _SaveError(Exception):
    """libmxnet has failed; it keeps the message."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def install() -> None:
    """From now on."""
    if _stock:
        return
    for name, place in _NATIVE.items():
        _replace(_LIB, name, functools.partial(_native, place))
    for kind, name in _METHODS:
        _replace(kind, name, _method)


def remove() -> None:
    """Until now."""
    for (owner, name), stock in _stock.items():
        setattr(owner, name, stock)
    _stock.clear()


def _replace(owner: Any, name: str, made: Callable[[_Save], _Save]) -> None:
    _stock[owner, name] = stock = getattr(owner, name)
    setattr(owner, name, made(stock))


def _native(place: int, stock: _Save) -> _Save:
    def save(*arguments: Any) -> int:
        path = _file(os.fsdecode(arguments[place].value))
        if path is None:
            return int(stock(*arguments))
        try:
            with _kept_mode(path) as temporary:
                name = ctypes.c_char_p(os.fsencode(temporary))
                status = int(stock(*arguments[:place], name, *arguments[place + 1:]))
                if status:
                    raise _SaveError(status)
        except _SaveError as error:
            return error.status
        return 0

    return save


def _method(stock: _Save) -> _Save:
    @functools.wraps(stock)
    def save(self: Any, fname: str) -> None:
        path = _file(fname)
        if path is None:
            return stock(self, fname)
        with _kept_mode(path) as temporary:
            stock(self, str(temporary))

    return save


@contextmanager
def _kept_mode(path: Path) -> Iterator[Path]:
    """`replacement`, with the permissions of the older file, which writing over it would keep."""
    with replacement(path) as temporary:
        yield temporary
        with suppress(FileNotFoundError):
            shutil.copymode(path, temporary)


def _file(name: str) -> Path | None:
    """The file that MXNet means, behind links; None where it can't be written to beside and renamed."""
    if "://" in name or name in ("stdin", "stdout"):
        return None
    path = Path(os.path.realpath(name))
    may_replace = path.is_file() or not path.exists()
    return path if may_replace and os.access(path.parent, os.W_OK | os.X_OK) else None
