"""How much a simulated result depends on each guessed number of a device, and of lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import permutations

from ngraph_mxnet.targets.nnp.device import Device, load_device
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.lowering import Settings, Version, lower
from ngraph_mxnet.targets.nnp.places import Guesses
from ngraph_mxnet.targets.nnp.program import Program

Overrides = dict[str, float]
_AXES = ("channels", "positions", "depth")
_NOT_TIME = ("energy", "size", "static", "queues", "host_queues", "shared")
"""The last parts of paths whose numbers have no bearing on the time of a given program."""


@dataclass(frozen=True)
class Variation:
    """Other values for guessed numbers of a device, by path; of lowering there are none. `what` says it in words."""

    what: str
    overrides: Overrides


@dataclass(frozen=True)
class Sensitivity:
    """`part`: the result with the variation, divided by the result without."""

    variation: Variation
    part: float


def variations(device: Device) -> Iterator[Variation]:
    """Each guess that bears on time halved and doubled; ways to map loops to the grid; choices the other way.

    The grid's dimensions are permuted, as their product is published.
    """
    for name in device.grids:
        own = tuple(device[f"grid.formats.{name}.{axis}"] for axis in _AXES)
        for other in sorted(set(permutations(own)) - {own}):
            words = " x ".join(f"{int(size)} {axis}" for size, axis in zip(other, _AXES, strict=True))
            yield Variation(f"{name} grid: {words}",
                            {f"grid.formats.{name}.{axis}": size for axis, size in zip(_AXES, other, strict=True)})
    for path, number in device.numbers.items():
        elsewhere = path.startswith(("grid.formats", "cores"))  # done above; of nodes that the engines don't run
        if number.kind != "guess" or elsewhere or path.split(".")[-1] in _NOT_TIME:
            continue
        if path == "grid.joined":
            others = [0.0, 1.0]
        elif number.unit.startswith("(1: yes"):
            others = [1.0 - number.value]
        else:
            others = [number.value / 2, number.value * 2]
        for value in others:
            yield Variation(f"{path} = {value:g} {number.unit}", {path: value})


def sensitivity(device: str, measure: Callable[[Device], float]) -> list[Sensitivity]:
    """Return the relative result of `measure`, such as the time of a program, with each variation of the device.

    The largest changes come first.
    """
    usual = load_device(device)
    base = measure(usual)
    found = [Sensitivity(each, measure(load_device(device, each.overrides)) / base) for each in variations(usual)]
    return _sorted(found)


def lowering_sensitivity(version: Version, settings: Settings,
                         measure: Callable[[Program], float]) -> list[Sensitivity]:
    """Return the relative result of `measure` with each other guess of lowering; the largest changes first.

    The graph is lowered anew for each guess. Most guesses change no instruction; then nothing is measured.
    """
    resources, base, found = settings.resources, measure(version.program), list[Sensitivity]()
    for what, other in _other_guesses(resources.guesses):
        program = order(lower(version.graph, version.weights, replace(resources, guesses=other), version.quantization,
                              instances=settings.instances).program)
        same = program.instructions == version.program.instructions
        found.append(Sensitivity(Variation(what, {}), 1.0 if same else measure(program) / base))
    return _sorted(found)


def _other_guesses(usual: Guesses) -> Iterator[tuple[str, Guesses]]:
    """Each guess in turn at its other values, with the words for it."""
    for each in fields(usual):
        for other in each.metadata["others"]:
            yield f"lowering's {each.name} = {other} {each.metadata['unit']}", replace(usual, **{each.name: other})


def _sorted(found: list[Sensitivity]) -> list[Sensitivity]:
    return sorted(found, key=lambda each: -abs(each.part - 1))
