"""The values of the environment variables that this package reads (`variables.py` is their table).

A value is read when it is asked for, so that a program may set it before the first compile. A text that is not allowed
counts as unset, and one message says so: nothing that a variable holds stops a model.
`docs_table()` is the documentation's table.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
from typing import Any

from ngraph_mxnet.cores import usable_cores
from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.variables import TABLE, Variable

VARIABLES: dict[str, Variable] = {variable.name: variable for variable in TABLE}

_warned: set[str] = set()
"""The messages about variables that were logged already."""


def get(name: str) -> Any:
    """The value of variable `name`.

    Raises:
        KeyError: this module does not declare it.
    """
    return _value(VARIABLES[name])


def _value(variable: Variable) -> Any:
    """The default also when the text is not allowed, which is told once."""
    try:
        return variable.checked()
    except ConfigError as error:
        if str(error) not in _warned:
            _warned.add(str(error))
            value = int(variable.default) if isinstance(variable.default, bool) else variable.default
            used = "it counts as unset" if value is None else f"{value} is used"
            logger(__name__).warning("%s; %s", error, used)
        return variable.default


def threads() -> int:
    """Threads for one graph: OMP_NUM_THREADS, else NGRAPH_INTRA_OP_PARALLELISM, else `usable_cores`."""
    return get("OMP_NUM_THREADS") or get("NGRAPH_INTRA_OP_PARALLELISM") or usable_cores()


def told_axes() -> dict[str, tuple[int, ...]]:
    """The axes by input whose sizes change, as NGRAPH_DYNAMIC tells them."""
    told = get("NGRAPH_DYNAMIC")
    return told if isinstance(told, dict) else {}


def compile_settings() -> str:
    """The settings that what is compiled depends on, as text."""
    settings = [f"{v.name}={_value(v)}" for v in TABLE if v.compiles]
    return " ".join([*settings, f"threads={threads()}"])


class _Console(logging.StreamHandler):
    """Writes to stderr as long as no handler of the program's gets our records, whenever it installs one."""

    def emit(self, record: logging.LogRecord) -> None:
        package = logging.getLogger("ngraph_mxnet")
        if len(package.handlers) > 1 or (package.propagate and logging.getLogger().handlers):
            return
        self.stream = sys.stderr
        super().emit(record)


def logger(name: str) -> logging.Logger:
    """The logger `name`, a module of this package, at NGRAPH_LOG_LEVEL or the program's own level."""
    package = logging.getLogger("ngraph_mxnet")
    if package.level == logging.NOTSET:
        package.setLevel(logging.WARNING)  # should the variable itself be told of
        package.addHandler(_Console())
        package.setLevel(get("NGRAPH_LOG_LEVEL").upper())
    return logging.getLogger(name)


_RUNTIME = "NGRAPH_RUNTIME_"
"""The prefix of the names of ngraph-runtime's variables."""


def unknown() -> dict[str, str | None]:
    """The variables that are set and look like ours but are not, and which of ours is meant, None if none is near."""
    found: dict[str, str | None] = {}
    for name in sorted(os.environ):
        if name.startswith("NGRAPH_") and not name.startswith(_RUNTIME) and name not in VARIABLES:
            found[name] = next(iter(difflib.get_close_matches(name, VARIABLES, 1)), None)
    return found


def warn_of_misspelt() -> None:
    """Warn once of each variable that is set and whose name is nearly one of ours."""
    for name, meant in unknown().items():
        if meant and name not in _warned:
            _warned.add(name)
            logger(__name__).warning("%s is set, but there is no such variable: did you mean %s?", name, meant)


def as_written(value: Any) -> Any:
    """A variable's value as a user writes it: a switch as 0 or 1."""
    return int(value) if isinstance(value, bool) else value


def docs_table() -> str:
    """All variables as a Markdown table."""
    rows = ["| variable | type | default | allowed | meaning |", "|---|---|---|---|---|"]
    for v in TABLE:
        default = "unset" if v.default is None else f"`{as_written(v.default)}`"
        rows.append(f"| `{v.name}` | {v.kind} | {default} | {v.allowed} | {v.help} |")
    return "\n".join(rows) + "\n"
