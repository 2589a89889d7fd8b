"""The environment variables on which a process that runs models depends, whichever library computes."""

from __future__ import annotations

from collections.abc import Mapping

PREFIXES = ("NGRAPH_", "MXNET_", "OMP_", "GOMP_", "KMP_", "MKLDNN_", "DNNL_", "ONEDNN_", "OV_", "ORT_")
"""The prefixes of the variables' names. Other variables may hold secrets, and are neither recorded nor shown."""


def settings_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are set, sorted by name."""
    return {name: value for name, value in sorted(environment.items()) if name.startswith(PREFIXES)}


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The others, for a process that is to have its own."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIXES)}
