"""The errors that this package raises on purpose."""

from __future__ import annotations


class NGraphRuntimeError(Exception):
    """Base of all errors of this package."""


class LibraryError(NGraphRuntimeError):
    """The C library is not there, or is none of this package's."""


class ModelError(NGraphRuntimeError):
    """A file can't be read or run here, or a run failed; the text is the library's."""


class InputError(NGraphRuntimeError, ValueError):
    """A call's arguments do not fit the model: names which, what was found and what was expected."""
