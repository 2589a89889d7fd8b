"""The devices that are simulated: each product's numbers, with unit and source, from `devices/*.json`.

A product's file names its chip, whose file holds what all products with it share; the product's own entries win.
A power mode gives power and clock; where only peak operations a second are published, clock = peak / (2 * MAC a cycle).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import ConfigError, NGraphError

if TYPE_CHECKING:
    from importlib.abc import Traversable

KINDS = ("published", "derived", "guess")
SHARED = ("host", "dram", "llc")
"""Levels of memory that are one memory for all engines; each engine has its own of the others."""


@dataclass(frozen=True)
class Number:
    """One number of a device. `kind` is one of KINDS: published, derived from published ones, or a guess."""

    value: float
    unit: str
    kind: str
    source: str


@dataclass(frozen=True)
class Grid:
    """The matrix grid for one element type: so many MAC along output channels, output positions, input channels."""

    channels: int
    positions: int
    depth: int
    energy: float  # J a MAC

    @property
    def macs(self) -> int:
        return self.channels * self.positions * self.depth


@dataclass(frozen=True)
class Vector:
    """The vector unit: operations on `bytes` at once, elements widened to at least `lane_bytes`."""

    bytes: int
    lane_bytes: int
    startup: float  # s
    cycles: Mapping[str, float]  # of one vector, by class of operation
    energy: float  # J an operation


@dataclass(frozen=True)
class Memory:
    """One level: size in bytes, bandwidth in B/s (reads and writes together), latency in s, energy in J/B."""

    level: str
    size: int
    bandwidth: float
    latency: float
    burst: int
    energy: float


@dataclass(frozen=True)
class Cores:
    """The chip's own general cores. Rates a second of all of them: f32 MAC, vectors of 16 elements, bytes; `startup` of
    a step in s."""

    count: int
    macs: float
    vectors: float
    bytes: float
    startup: float


@dataclass(frozen=True)
class Link:
    """A link, with its bandwidth in B/s in each direction, latency in s and energy in J/B."""

    bandwidth: float
    latency: float
    energy: float


class Device:
    """One product in one power mode; `numbers` is what the file says, by dotted path such as `memories.dram.size`."""

    def __init__(self, product: str, mode: str, engine: str, numbers: Mapping[str, Number]) -> None:
        self.product, self.mode, self.engine, self.numbers = product, mode, engine, dict(numbers)
        self.engines = int(self["engines"])
        if "clock" not in self.numbers:
            own = "grid.formats.i8."
            macs = self[own + "channels"] * self[own + "positions"] * self[own + "depth"]
            clock = self["peak"] / (2 * macs * self.engines)
            self.numbers["clock"] = Number(clock, "Hz", "derived", "peak / (2 x MAC a cycle x engines)")
        self.clock = self["clock"]
        self.grids: dict[str, Grid] = {}
        """By the element type of its operands."""
        for name in self._children("grid.formats"):
            channels, positions, depth, energy = (
                self[f"grid.formats.{name}.{key}"] for key in ("channels", "positions", "depth", "energy"))
            self.grids[name] = Grid(int(channels), int(positions), int(depth), energy)
        self.grid_startup = self["grid.startup"] / self.clock
        self.joined = int(self["grid.joined"])
        self.row_reuse = bool(self["grid.row_reuse"])
        cycles = {name: self[f"vector.cycles.{name}"] for name in self._children("vector.cycles")}
        self.vector = Vector(int(self["vector.bytes"]), int(self["vector.lane_bytes"]),
                             self["vector.startup"] / self.clock, cycles, self["vector.energy"])
        self.memories = {level: self._memory(level) for level in self._children("memories")}
        """By level; an engine's memory is as large as given here in each engine."""
        self.network = Link(self._rate("network.bandwidth"), 0.0, self["network.energy"])
        self.port = self._rate("network.port")
        self.host_link = Link(*(self[f"host_link.{key}"] for key in ("bandwidth", "latency", "energy")))
        self.shares_memory = bool(self["host_link.shared"])
        """True if host and device address one memory, so that nothing has to be copied between them."""
        self.queues, self.host_queues = int(self["dma.queues"]), int(self["dma.host_queues"])
        self.dma_startup = self["dma.startup"]
        self.native_transpose = "native_transpose" in self.numbers and bool(self["native_transpose"])
        self.cores = self._cores() if "cores.count" in self.numbers else None
        """None if the chip has no general cores."""
        self.power, self.static_power = self["power.design"], self["power.static"] * self["power.design"]

    def _cores(self) -> Cores:
        cycles = self["cores.count"] * self["cores.clock"]
        return Cores(int(self["cores.count"]), self["cores.macs"] * cycles, cycles, self["cores.bytes"] * cycles,
                     self["cores.startup"])

    @property
    def name(self) -> str:
        """The name that `load_device` takes, such as `nnp-i-1100:12W`."""
        return f"{self.product}:{self.mode}"

    def __repr__(self) -> str:
        return f"Device({self.name})"

    def __getitem__(self, path: str) -> float:
        return self.numbers[path].value

    def _children(self, path: str) -> list[str]:
        start = path + "."
        return list(dict.fromkeys(key[len(start):].split(".")[0] for key in self.numbers if key.startswith(start)))

    def _rate(self, path: str) -> float:
        """A rate in bytes a second; one that is given per cycle follows the clock."""
        number = self.numbers[path]
        return number.value * (self.clock if number.unit == "B/cycle" else 1.0)

    def _memory(self, level: str) -> Memory:
        own = f"memories.{level}."
        return Memory(level, int(self[own + "size"]), self._rate(own + "bandwidth"), self[own + "latency"],
                      int(self[own + "burst"]), self[own + "energy"])

    @property
    def local(self) -> tuple[str, ...]:
        """The levels that each engine has of its own, largest first."""
        levels = [level for level in self.memories if level not in SHARED]
        return tuple(sorted(levels, key=lambda level: -self.memories[level].size))

    @cached_property
    def memory_names(self) -> dict[str, Memory]:
        """All memories by name: `dram`, `ice3.sram` ..."""
        shared = {level: memory for level, memory in self.memories.items() if level in SHARED}
        return shared | {f"{self.engine}{number}.{level}": self.memories[level]
                         for number in range(self.engines) for level in self.local}

    def memory(self, name: str) -> Memory:
        """The memory called `name`, such as `ice3.sram`. Raises NGraphError: there is none."""
        if name not in self.memory_names:
            known = ", ".join([*(level for level in SHARED if level in self.memories),
                               *(f"{self.engine}0.{level}" for level in self.local)])
            raise NGraphError(f"{self.name} has no memory {name!r}; it has {known} and so for {self.engines} engines")
        return self.memory_names[name]

    @cached_property
    def units(self) -> dict[str, str]:
        """The kind (`dma`, `grid` or `vector`) of each unit by name: `host.dma0`, `ice3.grid` ..."""
        table = {f"host.dma{queue}": "dma" for queue in range(self.host_queues)}
        for number in range(self.engines):
            own = f"{self.engine}{number}."
            table |= {f"{own}dma{queue}": "dma" for queue in range(self.queues)}
            table |= {own + "grid": "grid", own + "vector": "vector"}
        return table

    def unit_kind(self, name: str) -> str:
        """The kind of the unit called `name`. Raises NGraphError: there is none."""
        if name not in self.units:
            known = [unit for unit in self.units if owner(unit) in ("host", f"{self.engine}0")]
            raise NGraphError(f"{self.name} has no unit {name!r}; it has {', '.join(known)} "
                              f"and so for {self.engines} engines")
        return self.units[name]

    def peak(self, element: str) -> float:
        """MAC a second of all engines' grids on operands of type `element`."""
        return self.grids[element].macs * self.engines * self.clock


def owner(name: str) -> str:
    """The engine of a memory or unit, such as `ice3` of `ice3.sram`; `host` of `host.dma0`; empty for shared ones."""
    return name.split(".")[0] if "." in name else ""


@cache
def devices() -> dict[str, tuple[str, ...]]:
    """The power modes of each product, the usual one first."""
    found = {}
    for name in sorted(_files()):
        content = _read(name)
        if "modes" in content:
            usual = content["mode"]
            found[content["name"]] = (usual, *(mode for mode in content["modes"] if mode != usual))
    return found


def load_device(name: str, overrides: Mapping[str, float] | None = None) -> Device:
    """The device called `name`: a product, or product and mode as in `nnp-i-1300:50W`; case doesn't matter.

    `overrides` replaces numbers by their path, to see how much depends on one.

    Raises:
        ConfigError: there is no such product, mode or number.
    """
    product, _, mode = name.strip().lower().partition(":")
    if product not in devices():
        raise ConfigError(f"no device {name!r}; known: {', '.join(devices())}")
    modes = {known.lower(): known for known in devices()[product]}
    if mode and mode not in modes:
        raise ConfigError(f"{product} has no power mode {mode!r}; it has {', '.join(modes.values())}")
    own = _read(product)
    chosen = modes[mode] if mode else own["mode"]
    merged = _merge(_read(own["chip"]), own)
    settings = dict(merged.pop("modes")[chosen])
    merged["power"]["design"] = settings.pop("power")
    numbers = dict(_numbers(merged | settings))
    for path, value in (overrides or {}).items():
        if path == "clock":
            numbers.setdefault(path, Number(0, "Hz", "derived", ""))
        if path not in numbers:
            raise ConfigError(f"{product} has no number {path!r}; it has {', '.join(numbers)}")
        numbers[path] = Number(value, numbers[path].unit, numbers[path].kind, "given by the caller")
    return Device(product, chosen, merged["engine"], numbers)


def add_devices(folder: Path) -> None:
    """Simulate the products of another distribution, too: files as those of `devices/`, of whose chips they may be.
    Raises ConfigError: a file has the name of one that is there."""
    taken = sorted(file.name for file in folder.glob("*.json") if file.stem in _files())
    if taken:
        raise ConfigError(f"{folder}: there are devices or chips of the names {', '.join(taken)}; rename the files")
    _folders.append(folder)
    registry.note_outside(str(folder))
    devices.cache_clear()


_folders: list[Traversable] = [resources.files("ngraph_mxnet.targets.nnp").joinpath("devices")]
"""This package's, and those that were added."""


def _files() -> dict[str, Traversable]:
    """The files of products and chips, by name."""
    return {file.name.removesuffix(".json"): file for folder in _folders for file in folder.iterdir()
            if file.name.endswith(".json")}


def _read(name: str) -> dict[str, Any]:
    return json.loads(_files()[name].read_text(encoding="utf-8"))


def _merge(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`base` with the entries of `own` added or in their place, down to single numbers."""
    merged = dict(base)
    for key, value in own.items():
        both = isinstance(value, dict) and "value" not in value and isinstance(base.get(key), dict)
        merged[key] = _merge(base[key], value) if both else value
    return merged


def _numbers(content: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Number]]:
    for key, value in content.items():
        if isinstance(value, dict) and "value" in value:
            yield start + key, Number(**value)
        elif isinstance(value, dict):
            yield from _numbers(value, f"{start}{key}.")
