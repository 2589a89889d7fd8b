"""Options of the backend HYBRID: its own options, and those that it passes on to its devices.

Options come as Python objects, or as text from MXNet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.runtime.costs import DeviceCosts
from ngraph_mxnet.runtime.options import read_samples, read_switch, require_known
from ngraph_mxnet.runtime.session import MOST_LANES

OPTIONS = {
    "devices": "the backends, the host's first (default: CPU,NNP)",
    "pins": "where nodes must run, as {pattern of a name: device} or PATTERN=DEVICE,...",
    "overlap": "0: one device at a time; 1: all at once where that is faster (default: 1)",
    "shared_memory": "1: all devices address the memory that tensors lie in; 0: they do not (default: what they are)",
    "costs": "{device: runtime.costs.DeviceCosts}, in place of what the devices state",
    "calibration": "samples, for int8 and what f16 can't hold: arrays for all inputs, weights too, or a list of such",
    "threads": "threads of the devices that have any, as the CPU (default: OMP_NUM_THREADS and so on, see `env`)",
}


@dataclass(frozen=True)
class Options:
    """All of them, with their defaults. `passed` are the options of each device."""

    devices: tuple[str, ...]
    pins: Mapping[str, str] = field(default_factory=dict)
    overlap: bool = True
    shared_memory: bool | None = None
    costs: Mapping[str, DeviceCosts] = field(default_factory=dict)
    calibration: Sequence[Sequence[np.ndarray]] = ()
    threads: Any = None
    passed: tuple[Mapping[str, Any], ...] = ()


def read_options(backend: str, given: Mapping[str, Any], devices: tuple[str, ...]) -> Options:
    """From what a caller gives; an option called `<device>_<name>` is one of that device, such as `nnp_precision`.

    Args:
        devices: unless others are given.

    Raises:
        ConfigError: an option is unknown, or its value is not allowed.
    """
    if "devices" in given:
        devices = read_devices(given["devices"])
    passed: tuple[dict[str, Any], ...] = tuple({} for _ in devices)
    own = {}
    for name, value in given.items():
        of = [device for device, called in enumerate(devices) if name.startswith(_prefix(called))]
        if name in OPTIONS or not of:
            own[name] = value
        else:
            for device in of:
                passed[device][name[len(_prefix(devices[device])):]] = value
    require_known(backend, own, {**OPTIONS, "<device>_<option>": "an option of a device, such as nnp_precision"})
    overlap, costs = read_switch(own, "overlap"), own.get("costs", {})
    if not isinstance(costs, Mapping):
        raise ConfigError(f"option costs: found {type(costs).__name__}, expected {{device: runtime.costs.DeviceCosts}}")
    return Options(devices, _pins(own.get("pins", {})), overlap is not False, read_switch(own, "shared_memory"),
                   costs, read_samples(own), own.get("threads"), passed)


def read_devices(devices: Any) -> tuple[str, ...]:
    """Two or more names of backends, from a sequence or from text.

    Raises:
        ConfigError: it is something else.
    """
    names = devices.split(",") if isinstance(devices, str) else devices
    found = tuple(str(name).strip() for name in names) if isinstance(names, (list, tuple)) else ()
    if not 2 <= len({name.upper() for name in found}) == len(found) <= MOST_LANES:
        raise ConfigError(f"option devices: found {devices!r}, expected two backends or more, each once, as CPU,NNP")
    return found


def _pins(pins: Any) -> Mapping[str, str]:
    if isinstance(pins, Mapping):
        return dict(pins)
    if not isinstance(pins, str):
        raise ConfigError(f"option pins: found {pins!r}, expected {{pattern: device}} or PATTERN=DEVICE,...")
    found = {}
    for pin in filter(None, pins.split(",")):
        pattern, separator, device = pin.strip().rpartition("=")
        if not separator or not pattern:
            raise ConfigError(f"option pins: found {pin!r}, expected PATTERN=DEVICE, such as conv*=CPU")
        found[pattern] = device
    return found


def _prefix(device: str) -> str:
    return device.split(":")[0].lower() + "_"
