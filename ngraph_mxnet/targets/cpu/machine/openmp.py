"""Settings of OpenMP that other runtimes know and libgomp, MXNet's, does not: what to set instead.

The threads are our own (csrc/core/team.cc) and go by libgomp's variables, which are read when it is loaded: before the
process starts they must be set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ngraph_mxnet.base import config

_warned: set[str] = set()


def ignored(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of Intel's runtime that are set and do nothing here, and what to set instead, as a sentence."""
    found = {}
    for name, advise in _ADVICE.items():
        value = environment.get(name, "").strip()
        advice = advise(value, environment) if value else ""
        if advice:
            found[name] = (f"{name}={value} has no effect: MXNet and this package run on libgomp, the variable is "
                           f"libiomp5's. {advice}")
    return found


def warn_of_ignored(environment: Mapping[str, str]) -> None:
    """Log a warning for each of them, once a process."""
    for name in ("NGRAPH_WAIT_US", "NGRAPH_SHARE_CORES"):
        config.get(name)  # C++ reads it, and tells nobody of a text that is not allowed
    for name, sentence in ignored(environment).items():
        if name not in _warned:
            _warned.add(name)
            config.logger(__name__).warning("%s", sentence)


def _affinity(value: str, environment: Mapping[str, str]) -> str:
    if any(environment.get(name) for name in ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")):
        return ""  # the user binds threads in the way that works
    modifiers = value.lower()
    listed = re.search(r"proclist\s*=\s*\[([^]]*)\]", modifiers)
    words = re.split(r"[,\s]+", re.sub(r"proclist\s*=\s*\[[^]]*\]", "", modifiers))
    if {"none", "disabled"} & set(words):
        return ""  # threads are not bound, here neither
    if listed:
        return f'Set GOMP_CPU_AFFINITY="{listed.group(1).replace(",", " ")}" instead.'
    # `compact,1` steps over hyper-threads, whatever the granularity: a thread a core.
    numbers = [word for word in words if word.isdigit()]
    steps_over = "compact" in words and bool(numbers) and numbers[0] != "0"
    fine = bool({"granularity=fine", "granularity=thread"} & set(words))
    places = "threads" if fine and not steps_over and "scatter" not in words else "cores"
    bind = "spread" if {"scatter", "balanced"} & set(words) else "close"
    return f"Set OMP_PROC_BIND={bind} OMP_PLACES={places} instead; see docs/tuning.md."


def _block_time(value: str, environment: Mapping[str, str]) -> str:
    if environment.get("OMP_WAIT_POLICY"):
        return ""
    if re.fullmatch(r"0(us|ms|s)?", value.lower()):
        return "Set OMP_WAIT_POLICY=passive for threads that sleep at once after a call."
    return "Threads stay awake between calls that follow each other quickly; NGRAPH_WAIT_US sets for how long."


_ADVICE: dict[str, Callable[[str, Mapping[str, str]], str]] = {
    "KMP_AFFINITY": _affinity,
    "KMP_BLOCKTIME": _block_time,
    "KMP_SETTINGS": lambda value, _: "Set OMP_DISPLAY_ENV=true to see the settings at start.",
    "KMP_HW_SUBSET": lambda value, _: "Set OMP_PLACES and OMP_NUM_THREADS, or start with taskset or numactl.",
}
