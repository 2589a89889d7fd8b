"""Texts of errors that came through libmxnet. This module imports nothing of MXNet."""

from __future__ import annotations

import re

OWN_ERROR = "NGraphSubgraphOp: "
"""The text that the plugin's errors begin with."""

_MOST_LENGTH = 500
_PLACE = re.compile(r"^\[\d\d:\d\d:\d\d\] \S+: ")
_TRACE = ("Traceback", "File ", "[bt]", "Stack trace")


def brief(error: BaseException) -> str:
    """Return the text of an error, without the traces, the times and the list of arguments that MXNet writes around
    it."""
    text = str(error).rpartition(OWN_ERROR)[2].partition("\nAt:\n")[0]
    lines = [_PLACE.sub("", line.strip()) for line in text.splitlines()]
    said = next((line for line in lines if line and not line.startswith(_TRACE)), "")
    return (said or repr(error))[:_MOST_LENGTH]
