"""Warnings that point to the program."""

import sys
import warnings

_NOT_THE_PROGRAM = ("ngraph_mxnet", "ngraph_mxnet_autoload", "mxnet", "importlib")


def warn(message: str) -> None:
    """A RuntimeWarning at the line of the program that was reached last: not ours, MXNet's or the import system's."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_PROGRAM:
        frame = frame.f_back
    names = frame.f_globals
    warnings.warn_explicit(message, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno,
                           names.get("__name__", "<unknown>"), names.setdefault("__warningregistry__", {}))
