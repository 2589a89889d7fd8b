"""What the backend HYBRID is asked for: its own options, and those that it passes on to its devices.

Options come as Python objects, or as text from MXNet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.hybrid.costs import DeviceCosts
from ngraph_mxnet.runtime.executable import check_options

OPTIONS = {
    "devices": "the two backends, the host's first (default: CPU,NNP)",
    "pins": "where nodes must run, as {pattern of a name: device} or PATTERN=DEVICE,...",
    "overlap": "0: one device at a time; 1: both at once where that is faster (default: 1)",
    "shared_memory": "1: both devices address the memory that tensors lie in; 0: they do not (default: what they are)",
    "cpu_costs": "modelled, or measured by running the graph on random inputs (default: modelled)",
    "costs": "{device: hybrid.costs.DeviceCosts}, in place of ours",
    "calibration": "samples, for int8 and what f16 can't hold: arrays for all inputs, weights too, or a list of such",
    "threads": "threads of the CPU (default: OMP_NUM_THREADS and so on, see `env`)",
}


@dataclass(frozen=True)
class Options:
    """All of them, with their defaults. `passed` are the options of each device."""

    devices: tuple[str, str]
    pins: Mapping[str, str] = field(default_factory=dict)
    overlap: bool = True
    shared_memory: bool | None = None
    measured: bool = False
    costs: Mapping[str, DeviceCosts] = field(default_factory=dict)
    calibration: Sequence[Sequence[np.ndarray]] = ()
    threads: int | None = None
    passed: tuple[Mapping[str, Any], Mapping[str, Any]] = field(default_factory=lambda: ({}, {}))


def read_options(backend: str, given: Mapping[str, Any], devices: tuple[str, str]) -> Options:
    """From what a caller gives; an option called `<device>_<name>` is one of that device, such as `nnp_precision`.

    Args:
        devices: unless others are given.

    Raises:
        ConfigError: an option is unknown, or its value is not allowed.
    """
    if "devices" in given:
        devices = _pair(given["devices"])
    passed: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    own = {}
    for name, value in given.items():
        device = next((n for n, of in enumerate(devices) if name.startswith(_prefix(of))), None)
        if name in OPTIONS or device is None:
            own[name] = value
        else:
            passed[device][name[len(_prefix(devices[device])):]] = value
    check_options(backend, own, {**OPTIONS, "<device>_<option>": "an option of a device, such as nnp_precision"})
    kind = str(own.get("cpu_costs", "modelled"))
    if kind not in ("modelled", "measured"):
        raise ConfigError(f"option cpu_costs: found {kind!r}, expected modelled or measured")
    threads, samples = own.get("threads"), own.get("calibration", ())
    if len(samples) and all(isinstance(array, np.ndarray) for array in samples):
        samples = [samples]
    return Options(devices, _pins(own.get("pins", {})), _switch(own, "overlap", True) is not False,
                   _switch(own, "shared_memory", None), kind == "measured", own.get("costs", {}), samples,
                   int(threads) if threads is not None else None, passed)


def _pair(devices: Any) -> tuple[str, str]:
    names = devices.split(",") if isinstance(devices, str) else list(devices)
    if len(names) != 2 or names[0].upper() == names[1].upper():
        raise ConfigError(f"option devices: found {devices!r}, expected two backends, such as CPU,NNP")
    return names[0].strip(), names[1].strip()


def _pins(pins: Any) -> Mapping[str, str]:
    if not isinstance(pins, str):
        return dict(pins)
    found = {}
    for pin in filter(None, pins.split(",")):
        pattern, separator, device = pin.strip().rpartition("=")
        if not separator or not pattern:
            raise ConfigError(f"option pins: found {pin!r}, expected PATTERN=DEVICE, such as conv*=CPU")
        found[pattern] = device
    return found


def _prefix(device: str) -> str:
    return device.split(":")[0].lower() + "_"


def _switch(own: Mapping[str, Any], name: str, default: bool | None) -> bool | None:
    value = own.get(name)
    if value is None:
        return default
    if str(value) not in ("0", "1", "False", "True"):
        raise ConfigError(f"option {name}: found {value!r}, expected 0 or 1")
    return str(value) in ("1", "True")
