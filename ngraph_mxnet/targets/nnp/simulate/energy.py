"""The energy of a simulated run: arithmetic, bytes moved, and the static part of the power over the time."""

from __future__ import annotations

from collections.abc import Mapping

from ngraph_mxnet.targets.nnp.device import Device


def energy(device: Device, seconds: float, macs: Mapping[str, float], operations: float,
           traffic: Mapping[str, float], carried: Mapping[str, float]) -> dict[str, float]:
    """Joules by what spends them: `grid`, `vector`, each level of memory, `network`, `host_link`, `static`.

    `macs` is by element type, `traffic` bytes by memory, `carried` bytes by link (see `work.route`).
    """
    spent = {"grid": sum(count * device.grids[element].energy for element, count in macs.items()),
             "vector": operations * device.vector.energy}
    for name, count in traffic.items():
        memory = device.memory(name)
        spent[memory.level] = spent.get(memory.level, 0.0) + count * memory.energy
    spent["network"] = carried.get("network", 0.0) * device.network.energy
    spent["host_link"] = (carried.get("host.in", 0.0) + carried.get("host.out", 0.0)) * device.host_link.energy
    spent["static"] = seconds * device.static_power
    return spent
