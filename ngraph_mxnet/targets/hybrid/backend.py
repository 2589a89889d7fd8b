"""The backend that places a graph's nodes on others, so that the predicted time is least: see docs/hybrid.md.

Its options come as Python objects, or as text from MXNet. Each region runs on its device; devices run at once where the
plan says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, GraphError, PackageError
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.ir.graph import Graph, Node
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.passes.base import FixedPoint, Pass, PassManager
from ngraph_mxnet.passes.clusters import InlineBodies
from ngraph_mxnet.passes.pipelines import shared_passes
from ngraph_mxnet.program.backend import (
    HOST_MEMORY,
    PRECISIONS,
    Backend,
    DeviceCosts,
    canonical_name,
    get_backend,
    load,
    read_samples,
    read_switch,
    require_known,
    require_nodes,
)
from ngraph_mxnet.program.compile import compile as compile_graph
from ngraph_mxnet.program.executable import (
    MOST_LANES,
    Executable,
    InputError,
    Meanwhile,
    Parts,
    PartTimes,
    Session,
    Times,
    checked_array,
    input_ports,
    ports_of,
)
from ngraph_mxnet.program.package import Package, count, decode_graph, encode_graph
from ngraph_mxnet.program.trace import span
from ngraph_mxnet.targets.hybrid.extraction import (
    Outline,
    Regions,
    extract_regions,
    origins,
    outline,
    pin_on,
    whole_region,
)
from ngraph_mxnet.targets.hybrid.plan import Plan, decode_plan, encode_plan
from ngraph_mxnet.targets.hybrid.rounds import Judged, best_of_rounds
from ngraph_mxnet.targets.hybrid.search import HOST, Placement, place
from ngraph_mxnet.targets.hybrid.throughput import throughput

OPTIONS = {
    "devices": "the backends, the host's first (default: CPU,NNP)",
    "pins": "where nodes must run, as {pattern of a name: device} or PATTERN=DEVICE,...",
    "overlap": "0: one device at a time; 1: all at once where that is faster (default: 1)",
    "shared_memory": "1: all devices address the memory that tensors lie in; 0: no two do (default: what they are)",
    "costs": "{device: runtime.backend.DeviceCosts}, in place of what the devices state",
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
    `devices`: unless others are given. Raises ConfigError: an option is unknown, or its value is not allowed."""
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
        raise ConfigError(f"option costs: found {type(costs).__name__}, expected "
                          "{device: runtime.backend.DeviceCosts}")
    return Options(devices, _pins(own.get("pins", {})), overlap is not False, read_switch(own, "shared_memory"),
                   costs, read_samples(own), own.get("threads"), passed)


def read_devices(devices: Any) -> tuple[str, ...]:
    """Two or more names of backends, from a sequence or from text. Raises ConfigError: it is something else."""
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


class HybridExecutable(Executable):
    """`plan` tells what runs where and why; `module` has the regions, in the order of the plan, `devices` where each of
    its steps runs, and `session` runs them. `target` is the backend's name."""

    def __init__(self, target: str, regions: Regions, executables: Mapping[str, Executable], plan: Plan,
                 parts: Mapping[int, Parts] = MappingProxyType({})) -> None:
        """
        Args:
            parts: by device, of the devices that run their steps as parts of one call; `executables` are of others.
        """
        super().__init__(*ports_of(regions.module.flow))
        self.target = target
        self.plan = plan
        self.module, self.devices = regions.module, regions.devices
        self.parts = dict(parts)
        self.executables = dict(executables)
        for each in parts.values():
            self.executables |= each.executables
        self._turn = ForkSafeLock()
        self.session = Session(self.module.flow, self.executables, self.devices, at_once=plan.overlaps)

    @property
    def native(self) -> Any:
        """That of the only region where it is the whole graph; None otherwise."""
        if len(self.session.calls) != 1:
            return None
        (call,) = self.session.calls
        if self.session.results != call.outputs or call.inputs != tuple(range(len(self.ports))):
            return None
        return getattr(call.executable, "native", None)

    def package(self) -> Package:
        whole = {step.graph for step, device in zip(self.module.flow.steps, self.devices, strict=True)
                 if device not in self.parts}
        code = {name: {"graph": encode_graph(graph),
                       "package": self.executables[name].package().plain() if name in whole else None}
                for name, graph in self.module.graphs.items()}
        parts = [(device, each.package().plain()) for device, each in self.parts.items()]
        settings = {"devices": self.devices, "plan": encode_plan(self.plan), "parts": parts}
        return Package(self.target, self.module.name, self.module.flow, code, settings)

    def simulate(self) -> Plan:
        """The plan, with the simulated time of a call, and of each region that is compiled for a simulated device.
        Raises ConfigError: in precision int8, before the first call."""
        plan = self.plan
        if plan.simulated_seconds is None:
            calls, found = self.session.calls[len(self.session.calls) - len(plan.regions):], simulate_call(self)
            for number, (call, (begin, end)) in enumerate(zip(calls, found.regions, strict=True)):
                if call.lane in self.parts or call.executable.simulated_seconds() is not None:
                    plan.simulated[number] = end - begin
            if plan.simulated:
                plan.simulated_seconds = found.seconds
        return plan

    def listing(self) -> str:
        """That of each region, in the order of the plan."""
        return "".join(f"step {number} on {self.plan.devices[call.lane]}\n{call.executable.listing()}"
                       for number, call in enumerate(self.session.calls, 1))

    def calibrate(self, samples: Sequence[Sequence[np.ndarray]]) -> None:
        """Let regions take what must be known of data (`Executable.calibrate`) from `samples`, each an array for each
        input, weights too.

        What one region gives the next is computed in the graph's types, where the device rounds by the interpreter.

        Raises:
            InputError: an array of a sample does not fit.
        """
        if not samples:
            return
        tables = [self.session.table(self.checked(tuple(sample))) for sample in samples]
        for call, step in zip(self.session.calls, self.module.flow.steps, strict=True):
            inputs = [[table[place] for place in call.inputs] for table in tables]
            reference = call.executable
            reference.calibrate(inputs)
            if reference.rough:
                reference = compile_graph(self.module.graphs[step.graph], "INTERPRETER")
            if call is self.session.calls[-1]:
                break
            for table, arrays in zip(tables, inputs, strict=True):
                for position, result in zip(call.outputs, reference.run(arrays), strict=True):
                    table[position] = result

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        if not self.parts:
            return self.session.run(arrays)
        with self._turn:  # a device runs the parts of one call
            if not all(each.calibrated for each in self.parts.values()):
                self.calibrate([arrays])
            given = {value.name: array for value, array in zip(self.module.flow.inputs, arrays, strict=True)}
            for each in self.parts.values():
                each.begin(given)
            return self.session.run(arrays)

    def simulated_trace(self) -> str:
        return simulate_call(self).trace()


@dataclass(frozen=True)
class CallTimes:
    """The seconds of a call, begin and end of each region in the order of the plan, and a Chrome trace."""

    seconds: float
    regions: tuple[Times, ...]
    trace: Callable[[], str]


def simulate_call(executable: HybridExecutable, seconds: Mapping[int, float] = MappingProxyType({})) -> CallTimes:
    """Simulate a call: regions of simulated devices as they are compiled, copies to and from the host among them.

    Devices take their regions in the order of the plan. The device with the most regions is simulated as a whole: its
    regions wait for others and share its memories and links, and the host starts those for which it has inputs. Regions
    of any other device take their seconds alone, behind a launch. The spans of regions are without launches.

    Args:
        seconds: of regions that are not part of a device's call, by number, with their transfers and without their
            launches; default: those that their programs tell, or else the plan predicts.

    Raises:
        ConfigError: in precision int8, before the first call.
    """
    calls, flow, plan = executable.session.calls, executable.module.flow, executable.plan
    overlap = plan.placement.method != "minimum cut"  # which is the method for one device at a time
    first = len(calls) - len(plan.regions)  # a step without a region prepares results, and takes a call no time
    lanes, launch = [call.lane for call in calls], plan.outline.problem.launch
    device = max(executable.parts, key=lanes.count, default=None)
    steps: list[Meanwhile] = []
    launches: list[float] = []  # which each of the steps begins with
    makers: dict[str, int] = {}
    there: set[str] = set()
    part = 0
    for number, (call, step) in enumerate(zip(calls, flow.steps, strict=True), -first):
        reads, makes = (tuple(value.name for value in values) for values in (step.inputs, step.outputs))
        start = launch[call.lane] if number >= 0 else 0.0
        after = tuple(sorted({makers[name] for name in reads if name in makers}))
        if call.lane == device:
            given = tuple(value.name for value in step.inputs if value.role is not Role.WEIGHT)
            if new := tuple(name for name in given if name not in there):
                steps.append(Meanwhile(part, call.lane, start, (), new, after))
                launches.append(start)
            there |= {*given, *makes}
            part += 1
            continue
        taken = seconds.get(number, call.executable.simulated_seconds())
        if taken is None and number >= 0:
            taken = plan.placement.regions[number].seconds - start + _crossing_seconds(plan, number)
        makers |= dict.fromkeys(makes, len(steps))
        steps.append(Meanwhile(part, call.lane, start + (taken or 0.0), reads, makes, after))
        launches.append(start)
    if device is None:
        found = _listed(steps, overlap, (calls[-1].executable if calls else executable).simulated_trace)
    else:
        found = executable.parts[device].simulate(steps, overlap=overlap)
    parts, others = iter(found.parts), iter([
        (begin + start, end) for one, start, (begin, end) in zip(steps, launches, found.meanwhile, strict=True)
        if one.lane != device])
    spans = [next(parts if lane == device else others) for lane in lanes]
    return CallTimes(found.seconds, tuple(spans[first:]), found.trace)


_Order = tuple[tuple[int, tuple[int, ...]], ...]


def _in_order(placement: Placement) -> _Order:
    """Device and items of each region, in the order in which they were compiled."""
    return tuple((region.device, region.items) for region in placement.regions)


def _judged(executable: HybridExecutable, costs: Sequence[DeviceCosts]) -> Judged:
    """The times that the devices tell of what was compiled for them, and that of a call."""
    plan, calls = executable.plan, executable.session.calls
    placement, times = plan.placement, dict[int, float]()
    steps = executable.module.flow.steps[len(calls) - len(placement.regions):]
    for number, (region, step) in enumerate(zip(placement.regions, steps, strict=True)):
        tells = costs[region.device].compiled
        if tells is not None and region.device not in executable.parts:
            seconds = tells(executable.module.graphs[step.graph], executable.executables[step.graph])
            if seconds is not None:
                times[number] = seconds
    found = simulate_call(executable, times)
    times |= {number: end - begin for number, (region, (begin, end)) in enumerate(
        zip(placement.regions, found.regions, strict=True)) if region.device in executable.parts}
    return Judged(placement, times, found.seconds)


def _crossing_seconds(plan: Plan, number: int) -> float:
    """The predicted seconds of a region's copies to and from its device, if that has a memory of its own: of what the
    region is the first to read there, and of what it makes for others."""
    regions, problem = plan.placement.regions, plan.outline.problem
    region, own = regions[number], set(regions[number].items)
    if region.device == HOST:
        return 0.0
    earlier = {item for other in regions[:number] if other.device == region.device for item in other.items}
    seconds = 0.0
    for crossing in problem.crossings(plan.placement.devices):
        tensor = problem.tensors[crossing.tensor]
        reads = crossing.to == region.device and own.intersection(tensor.readers) and (
            not earlier.intersection(tensor.readers))
        makes = crossing.here == region.device and tensor.producer in own
        if (reads or makes) and problem.crossing_seconds(crossing):
            seconds += tensor.crossing[region.device]  # beyond the host's memory, the copy is the other device's
    return seconds


def _listed(steps: Sequence[Meanwhile], overlap: bool, trace: Callable[[], str]) -> PartTimes:
    """When each step runs, if each lane takes its steps in order; without `overlap` all are one lane."""
    free: dict[int, float] = {}
    spans: list[Times] = []
    for step in steps:
        lane = step.lane if overlap else HOST
        begin = max([free.get(lane, 0.0), *(spans[other][1] for other in step.after)])
        free[lane] = begin + step.seconds
        spans.append((begin, free[lane]))
    return PartTimes(max(free.values(), default=0.0), (), tuple(spans), trace)


Backends = tuple[Backend, ...]


class HybridBackend(Backend):
    """See `Backend`, and docs/hybrid.md. The variant names the devices, the host first, as in
    `HYBRID:cpu,nnp:nnp-t-1400`; without a comma it is the NNP's, beside the CPU: `HYBRID:nnp-t-1400`."""

    options = OPTIONS

    def __init__(self, variant: str = "") -> None:
        self.name = f"HYBRID:{variant}" if variant else "HYBRID"
        self.devices = read_devices(variant) if "," in variant else ("CPU", f"NNP:{variant}" if variant else "NNP")
        _backends(self.devices)  # are there such devices?

    def supports(self, node: Node) -> str | None:
        return _reason(_backends(self.devices), node)

    def notices(self) -> list[str]:
        return [notice for backend in _backends(self.devices) for notice in backend.notices()]

    def check_options(self, options: Mapping[str, Any]) -> None:
        wanted, backends = self._wanted(options)
        for backend, passed in zip(backends, wanted.passed, strict=True):
            backend.check_options(passed)

    def precision(self, options: Mapping[str, Any]) -> str:
        wanted, backends = self._wanted(options)
        found = {backend.precision(passed) for backend, passed in zip(backends, wanted.passed, strict=True)}
        return max(found, key=PRECISIONS.index)

    def pipeline(self) -> Sequence[Pass | FixedPoint]:
        """Return the passes that run before placement; the devices' own passes follow."""
        return [InlineBodies(), *shared_passes()]

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> HybridExecutable:
        wanted, backends = self._wanted(options)
        outlined, costs = self._outlined(graph.clone(), wanted, backends)
        kinds, made = tuple(device.kind for device in costs), dict[_Order, HybridExecutable]()

        def judge(placement: Placement) -> Judged:
            found = made[_in_order(placement)] = self._made(graph, Plan(outlined, placement, kinds), wanted, backends)
            return _judged(found, costs)

        tells = any(device.compiled is not None for device in costs)
        best = best_of_rounds(outlined.problem, judge if tells else None, overlap=wanted.overlap)
        plan = Plan(replace(outlined, problem=best.problem), best.placement, kinds)
        plan.simulated.update(best.times)
        plan.simulated_seconds = best.seconds
        found = made.get(_in_order(best.placement))
        if found is not None:
            found.plan = plan
        else:
            found = self._made(graph, plan, wanted, backends)
        found.calibrate(wanted.calibration)
        return found

    def _made(self, graph: Graph, plan: Plan, wanted: Options, backends: Backends) -> HybridExecutable:
        """The regions of the plan, compiled."""
        regions = _whole(graph, plan, backends) or extract_regions(plan.outline, plan.placement.regions)
        parts: dict[int, Parts] = {}
        executables: dict[str, Executable] = {}
        for device in dict.fromkeys(regions.devices):
            module = regions.on(device)
            graphs = {name: graph.clone() for name, graph in module.graphs.items()}
            made = None if len(regions.devices) == 1 else backends[device].compile_parts(
                replace(module, graphs=graphs), wanted.passed[device], regions.near(device, plan.memories))
            if made is not None:
                parts[device] = made
            else:
                executables |= {name: backends[device].compile(graph, wanted.passed[device])
                                for name, graph in graphs.items()}
        return HybridExecutable(self.name, regions, executables, plan, parts)

    def load(self, package: Package) -> HybridExecutable:
        try:
            graphs = {name: decode_graph(found["graph"]) for name, found in package.code.items()}
            plan = decode_plan(package.settings["plan"])
            module, devices = Module(package.name, graphs, package.flow), tuple(map(count, package.settings["devices"]))
            module.verify()
            if len(devices) != len(package.flow.steps) or not all(device < len(plan.devices) for device in devices):
                raise ValueError(f"steps on devices {devices} of {plan.devices}")
            regions = Regions(module, devices)
            together = {device: get_backend(plan.devices[device]).load_parts(Package.from_plain(part),
                                                                             regions.on(device))
                        for device, part in package.settings["parts"]}
            executables = {name: load(Package.from_plain(found["package"])) for name, found in package.code.items()
                           if found["package"] is not None}
            return HybridExecutable(self.name, regions, executables, plan, together)
        except (ArithmeticError, ConfigError, GraphError, LookupError, TypeError, ValueError) as error:
            raise PackageError(f"package {package.name}: {error}") from error

    def plan(self, graph: Graph, options: Mapping[str, Any]) -> Plan:
        """Return the plan that says where the nodes of `graph`, a verified graph, would be placed.

        Nothing is compiled, unless an option `simulate` or `throughput` is 1; `graph` may be rewritten. With either,
        the plan also has the simulated time of each region of a simulated device, and with `throughput` the rate of
        requests that follow each other.

        Raises:
            UnsupportedError, ConfigError: as `compile`.
        """
        options = dict(options)
        simulates, serves = (str(options.pop(name, "0")) == "1" for name in ("simulate", "throughput"))
        if simulates or serves:
            plan = self.compile(graph, options).simulate()
            if serves:
                plan.throughput = throughput(plan.outline.problem, plan.placement, plan.simulated)
            return plan
        wanted, backends = self._wanted(options)
        outlined, costs = self._outlined(graph, wanted, backends)
        with span("place", "compile"):
            placement = place(outlined.problem, overlap=wanted.overlap)
        return Plan(outlined, placement, tuple(device.kind for device in costs))

    def _wanted(self, options: Mapping[str, Any]) -> tuple[Options, Backends]:
        wanted = read_options(self.name, options, self.devices)
        backends = _backends(wanted.devices)
        passed = [backend.beside(_with_threads(backend, given, wanted.threads))
                  for backend, given in zip(backends, wanted.passed, strict=True)]
        return replace(wanted, passed=tuple(passed)), backends

    def _outlined(self, graph: Graph, wanted: Options, backends: Backends) -> tuple[Outline, tuple[DeviceCosts, ...]]:
        """What is to be placed, and the costs of each device."""
        require_nodes(graph, partial(_reason, backends), self.name)
        InlineBodies().run(graph)
        graph.remove_dead()
        graph = _optimized(graph, wanted.pins, self.pipeline())
        with span("cost", "compile"):
            costs = tuple(_costs(backend, graph, wanted, device) for device, backend in enumerate(backends))
            found = outline(graph, backends, costs, wanted.pins, memories=_memories(backends, costs, wanted),
                            unfit=_unfit(backends, graph, wanted))
        return found, costs


def _memories(backends: Backends, costs: Sequence[DeviceCosts], wanted: Options) -> tuple[int, ...]:
    """A number for the memory of each device. Raises ConfigError: memory is to be shared that can't be."""
    if wanted.shared_memory:
        for backend, device in zip(backends, costs, strict=True):
            if device.apart:
                raise ConfigError(f"option shared_memory: found 1, but {backend.name} can't share the host's memory: "
                                  f"{device.apart}. Leave the option out: devices that share a memory do then")
        return (HOST,) * len(backends)
    names = [HOST_MEMORY, *(device.memory for device in costs[1:])]
    return tuple(names.index(name) if name and wanted.shared_memory is None else number
                 for number, name in enumerate(names))


def _unfit(backends: Backends, graph: Graph, wanted: Options) -> list[Mapping[Node, str]]:
    """For each device, the nodes that should not run there although it can, and why; only samples tell."""
    for sample in wanted.calibration:
        if len(sample) != len(graph.parameters):
            raise InputError(f"option calibration: found a sample of {len(sample)} arrays, expected "
                             f"{len(graph.parameters)}, one for each input, weights too")
    samples = [[checked_array(port, array) for port, array in zip(input_ports(graph), sample, strict=True)]
               for sample in wanted.calibration]
    return [backend.unfit(graph, passed, samples) for backend, passed in zip(backends, wanted.passed, strict=True)]


def _with_threads(backend: Backend, options: Mapping[str, Any], threads: Any) -> Mapping[str, Any]:
    """Return `options` with the threads of HYBRID, if the device has that option and `options` sets no other number."""
    return {"threads": threads, **options} if threads is not None and "threads" in backend.options else options


def _backends(names: tuple[str, ...]) -> Backends:
    return tuple(map(get_backend, names))


def _optimized(graph: Graph, pins: Mapping[str, str], passes: Sequence[Pass | FixedPoint]) -> Graph:
    """A graph with the nodes whose costs tell most of what the devices' own passes will make of them.

    Where a pinned node became part of one that is not pinned alike, the graph stays as it is.
    """
    found = graph.clone()
    with span("passes", "compile"):
        PassManager(passes).run(found)
    for node in found.nodes:
        if len({pins.get(pin_on(origin, pins) or "") for origin in origins(node)}) > 1:
            return graph
    return found


def _whole(graph: Graph, plan: Plan, backends: Backends) -> Regions | None:
    """The graph as it was given, if it is one region: the device's own passes know best. None otherwise."""
    device = plan.placement.regions[0].device if plan.placement.regions else HOST
    if len(plan.regions) > 1 or any(backends[device].supports(node) for node in graph.nodes):
        return None
    return whole_region(graph, device)


def _reason(backends: Backends, node: Node) -> str | None:
    reasons = [backend.supports(node) for backend in backends]
    if None in reasons:
        return None
    return "; ".join(f"{backend.name}: {reason}" for backend, reason in zip(backends, reasons, strict=True))


def _costs(backend: Backend, graph: Graph, wanted: Options, device: int) -> DeviceCosts:
    given = {canonical_name(name): costs for name, costs in wanted.costs.items()}
    found = given.get(canonical_name(wanted.devices[device])) or backend.costs(graph, wanted.passed[device])
    if found is None:
        raise ConfigError(f"nothing is known of what nodes cost on {backend.name}; tell it by the option costs")
    return found
