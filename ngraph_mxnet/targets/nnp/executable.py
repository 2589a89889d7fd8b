"""A graph compiled for the simulated device: weights, inputs and results between NumPy and the device's formats.

What was compiled is kept as plain data, in parts of a package. `NNPReplicas` shares a call's work among devices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, TypeVar

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, NGraphError, PackageError
from ngraph_mxnet.base.forks import ForkSafeLock, Recent
from ngraph_mxnet.ir.graph import Graph, Node, Value, make_node
from ngraph_mxnet.ir.module import Changes, Flow, Module, Shared, Step, changes_of, single_step
from ngraph_mxnet.ir.types import Role, Shape
from ngraph_mxnet.passes.clusters import MAIN, PREPARE, split_prepare
from ngraph_mxnet.program.compile import compile
from ngraph_mxnet.program.executable import (
    Executable,
    InputError,
    Meanwhile,
    Parts,
    PartTimes,
    Times,
    checked_array,
    input_ports,
    output_ports,
    ports_of,
)
from ngraph_mxnet.program.package import Package, count, decode_graph, decode_module, encode_graph, text
from ngraph_mxnet.targets.nnp.access import ways
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.functional import FunctionalSimulator
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.lowering import Arrays, Lowered, PartNumbers, Settings, Version, lower
from ngraph_mxnet.targets.nnp.places import convert_views, resources_of
from ngraph_mxnet.targets.nnp.program import Program, parse_program, print_program
from ngraph_mxnet.targets.nnp.quantization import FORMATS, Quantization, known_arrays, uniform
from ngraph_mxnet.targets.nnp.quantize import quantize
from ngraph_mxnet.targets.nnp.report import EngineRow, Report, count_call, make_report, trace_text
from ngraph_mxnet.targets.nnp.timing import Timeline, simulate, with_steps

Result = TypeVar("Result")


def encode_settings(settings: Settings, samples: Sequence[Arrays]) -> dict[str, Any]:
    """Plain data (see `package.package.pack`), with these samples. Raises PackageError: a number of the device, or of
    lowering, is not the usual one."""
    device, resources = settings.resources.device, settings.resources
    usual = resources_of(load_device(device.name), resources.element).with_engines(len(resources.engines))
    if usual.device.numbers != device.numbers or replace(resources, device=usual.device) != usual:
        raise PackageError(f"only what was compiled for {device.name} as it is can be kept, not with other numbers")
    return {"device": device.name, "element": resources.element, "engines": len(resources.engines),
            "instances": settings.instances, "narrow": settings.narrow, "devices": settings.devices,
            "arrivals": settings.arrivals, "begins": settings.begins,
            "near": settings.near, "samples": [list(sample) for sample in samples]}


def decode_settings(found: Any) -> Settings:
    """Return the settings that `encode_settings` encoded. Raises PackageError: the data are something else, or there is
    no such device."""

    def counts(numbers: Any) -> tuple[int, ...]:
        return tuple(map(count, numbers))

    def settings() -> Settings:
        resources = resources_of(load_device(text(found["device"])), text(found["element"]))
        engines, samples = count(found["engines"]), tuple(tuple(sample) for sample in found["samples"])
        real = resources.element in resources.device.grids and FORMATS[resources.element].is_float
        if not real or not 1 <= engines <= len(resources.engines):
            raise ValueError(f"{resources.device.name} with {engines} engines and {resources.element}")
        if not all(isinstance(array, np.ndarray) for sample in samples for array in sample):
            raise TypeError("a sample is no list of arrays")
        return Settings(resources.with_engines(engines), count(found["instances"]), bool(found["narrow"]), samples,
                        count(found["devices"]), counts(found["arrivals"]), counts(found["begins"]),
                        (counts(found["near"][0]), counts(found["near"][1])))

    return _read("settings", settings)


def encode_version(version: Version) -> dict[str, Any]:
    """Plain data; the Program is text, in which what it holds before a call is empty."""
    values = {value: number for number, value in enumerate(version.graph.values())}
    nodes = {node: number for number, node in enumerate(version.graph.nodes)}
    stored, lowered = version.quantization, version.lowered
    empty = dict.fromkeys((*lowered.weights.values(), *lowered.scales.values()), b"")
    return {
        "graph": encode_graph(version.graph),
        "known": sorted(values[value] for value in version.weights),
        "elements": [stored.elements.get(value) for value in values],
        "scales": [(values[value], scale) for value, scale in stored.scales.items() if value in values],
        "channel_scales": [(values[value], scales) for value, scales in stored.weights.items() if value in values],
        "products": sorted(nodes[node] for node in stored.products if node in nodes),
        "program": print_program(replace(lowered.program, constants=empty)),
        "weights": [values[value] for value in lowered.weights],
        "sum_scales": [nodes[node] for node in lowered.scales],
    }


def decode_version(found: Any, main: Graph, settings: Settings) -> Version:
    """Return the version of the graph `main` that `encode_version` encoded. Raises PackageError: the data are something
    else."""

    def version() -> Version:
        graph = decode_graph(found["graph"])
        ports = [[value.type for value in (*each.parameters, *each.results)] for each in (graph, main)]
        if ports[0] != ports[1]:
            raise ValueError("its inputs or results are not the graph's")
        values, nodes = list(graph.values()), graph.nodes
        quantization = Quantization(
            {value: element for value, element in zip(values, found["elements"], strict=True) if element is not None},
            {values[count(number)]: float(scale) for number, scale in found["scales"]},
            {values[count(number)]: _array(scales) for number, scales in found["channel_scales"]},
            {nodes[count(number)] for number in found["products"]})
        program = parse_program(text(found["program"]))
        if program.device != settings.resources.device.name:
            raise ValueError(f"its program is for {program.device}")
        if [*program.begins, len(program.instructions)] != sorted([*program.begins, len(program.instructions)]):
            raise ValueError(f"its parts begin at {program.begins} of {len(program.instructions)} instructions")
        buffers = list(program.constants)
        program.constants = {}
        weights = [values[count(number)] for number in found["weights"]]
        scales = [nodes[count(number)] for number in found["sum_scales"]]
        if len(buffers) != len(weights) + len(scales):
            raise ValueError(f"its program has {len(buffers)} constants, expected {len(weights)} and {len(scales)}")
        lowered = Lowered(program, dict(zip(weights, buffers, strict=False)),
                          dict(zip(scales, buffers[len(weights):], strict=True)))
        return Version(graph, frozenset(values[count(number)] for number in found["known"]), quantization, lowered)

    return _read("version", version)


def _array(value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{value!r} is no array")
    return value


def _read(what: str, read: Callable[[], Result]) -> Result:
    try:
        return read()
    except PackageError:
        raise
    except (ArithmeticError, AttributeError, LookupError, NGraphError, TypeError, ValueError) as error:
        raise PackageError(f"these are no data of a {what} of the NNP: {error}") from error


_KEPT = 2
"""Sets of weights whose loaded device is kept."""


class NNPExecutable(Executable):
    """Runs Programs on the functional simulator.

    What depends on weights only is computed in float32 and rounded once; the device that holds the result is kept by
    the hash of all weights. In i8 each set of weights has scales and a Program of its own.
    """

    rough = True

    def __init__(self, target: str, module: Module, settings: Settings,
                 versions: Mapping[str, Version] | None = None) -> None:
        """
        Args:
            target: the backend's name.
            module: of `split_prepare`.
            versions: of which a package told, by the digest of the weights that they are for; by the empty text where
                it does not matter which they are.
        """
        super().__init__(*ports_of(module.flow))
        self.target, self.settings, self.module = target, settings, module
        flow, prepare, main = module.flow, module.flow.step(PREPARE), module.flow.step(MAIN)
        self._prepare = compile(module.graphs[PREPARE], "INTERPRETER") if prepare.outputs else None
        places = {value: place for place, value in enumerate((*flow.inputs, *prepare.outputs))}
        self._prepared_of = [places[value] for value in prepare.inputs]
        self._sources = [places[value] for value in main.inputs]
        """For each operand of main, its index among the inputs followed by the prepared values."""
        self._weights = [index for index, value in enumerate(flow.inputs) if value.role is Role.WEIGHT]
        changes = changes_of(flow)
        self._known = [changes[value] is not Changes.WITH_CALLS for value in main.inputs]
        self._call: tuple[Version, FunctionalSimulator] | None = None
        """The version and the device of the call that goes on part by part."""
        self._samples: list[Arrays] = [[checked_array(port, array, what="calibration input") for port, array in
                          zip(self.ports, sample, strict=True)] for sample in settings.samples]
        self._loaded = Recent(_KEPT)
        self._lock = ForkSafeLock()
        self._timeline: Timeline | None = None
        self._packed = dict(versions or {})
        latest = next(reversed(self._packed.values()), None)
        self._version = latest if latest is not None or settings.narrow else self._real_version()

    def package(self) -> Package:
        """With the versions of the latest weights, which are not calibrated again."""
        graphs = self.module.graphs
        with self._lock:
            known = {key: version for key, (version, _) in zip(self._loaded, self._loaded.values(), strict=True)}
            versions = {**self._packed, **known} if self.settings.narrow else {"": self._version}
            settings = {**encode_settings(self.settings, self._samples),
                        "versions": [(key, encode_version(version)) for key, version in versions.items() if version]}
        return Package(self.target, self.module.name, self.module.flow,
                       {name: encode_graph(graph) for name, graph in graphs.items()}, settings)

    @staticmethod
    def of(target: str, package: Package) -> NNPExecutable:
        """Return the executable that the package was made from. Raises PackageError: the package is damaged, or its
        device is not known."""
        module, settings = decode_module(package), decode_settings(package.settings)
        try:
            flow = module.flow
            steps = [step.graph for step in flow.steps]
            if steps != [PREPARE, MAIN] or flow.results != flow.step(MAIN).outputs:
                raise ValueError(f"its steps call {steps}")
            versions = {text(key): decode_version(found, module.graphs[MAIN], settings)
                        for key, found in package.settings["versions"]}
            return NNPExecutable(target, module, settings, versions)
        except (InputError, LookupError, TypeError, ValueError) as error:
            raise PackageError(f"package {package.name}: {error}") from error

    @property
    def version(self) -> Version:
        """How the graph is lowered. Raises ConfigError: there are no scales for i8 yet."""
        if self._version is None:
            raise ConfigError("precision int8 has no scales before the first call: call the executable once, on inputs "
                              "like those to come, or give arrays by the option calibration and then call it")
        return self._version

    @property
    def program(self) -> Program:
        """The Program of the latest weights; without them."""
        return self.version.program

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """Those of the Program's inputs, empty for prepared values, and of its results."""
        ports = [port.name for port in self.ports]
        return ([ports[source] if source < len(ports) else "" for source in self._sources],
                [port.name for port in self.outputs])

    @property
    def timeline(self) -> Timeline:
        """The simulated run of `program`, which does not depend on data."""
        program = self.program
        if self._timeline is None or self._timeline.program is not program:
            self._timeline = simulate(program)
        return self._timeline

    def report(self) -> Report:
        """Return a report of one call on the device: simulated time, utilisation, traffic, energy.

        The report prints with `rich`.

        Raises:
            ConfigError: precision int8 before the first call.
        """
        return make_report(self.timeline)

    def listing(self) -> str:
        """The Program of the latest weights; of constants their places only."""
        return print_program(self.program, elide=True)

    def simulated_trace(self) -> str:
        return trace_text(self.timeline)

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        version, device = self._device(arrays)
        quantization = version.quantization
        inputs = []
        for value, known, source in zip(version.graph.parameters, self._known, self._sources, strict=True):
            array = np.zeros(value.shape, value.type.element.numpy) if known else arrays[source]
            inputs.append(quantization.store(value, array))
        outputs = device.run(inputs)
        count_call(version.program, self.settings.devices)
        return [quantization.load(value, output) for value, output in zip(version.graph.results, outputs, strict=True)]

    def begin(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Begin a call part by part, with the weights by name; other inputs come with the parts."""
        nothing = np.empty(0)
        version, device = self._call = self._device([arrays.get(port.name, nothing) for port in self.ports])
        device.begin()
        count_call(version.program, self.settings.devices)

    def advance(self, part: int, arrays: Mapping[int, np.ndarray], wanted: Sequence[int]) -> list[np.ndarray]:
        """Run a part of the call that `begin` began, with the arrays of inputs by number. Return these results."""
        assert self._call is not None, "a call begins by `begin`"
        version, device = self._call
        store, load = version.quantization.store, version.quantization.load
        given = {place: store(value, arrays[source])
                 for place, (value, known, source) in enumerate(zip(version.graph.parameters, self._known,
                                                                    self._sources, strict=True))
                 if not known and source in arrays}
        device.advance(part, given)
        results = version.graph.results
        return [load(results[number], stored)
                for number, stored in zip(wanted, device.results(wanted), strict=True)]

    def calibrate(self, samples: Sequence[Arrays]) -> None:
        """Take the scales for i8 from `samples`, each an array for each input, unless there are samples already."""
        self._samples = self._samples or list(samples)

    def simulated_seconds(self) -> float:
        return self.timeline.seconds

    def simulated_engines(self) -> Sequence[EngineRow]:
        return self.report().engines

    # ---- versions -----------------------------------------------------------------------------------------

    def _real_version(self) -> Version:
        graph, weights, parts = self._copy()
        nothing = {value: np.zeros((), np.float32) for value in weights}
        return self._lowered(graph, weights, parts, uniform(graph, nothing, self.settings.resources.element))

    def _narrow_version(self, arrays: Arrays, contents: Arrays) -> Version:
        graph, weights, parts = self._copy()
        known = {value: content for value, content, mine in zip(graph.parameters, contents, self._known, strict=True)
                 if mine}
        samples: list[Arrays] = [
            [content if mine else sample[source] for content, mine, source in
             zip(contents, self._known, self._sources, strict=True)]
            for sample in [*self._samples] or [arrays]
        ]
        return self._lowered(graph, weights, parts,
                             quantize(graph, known, samples, element=self.settings.resources.element))

    def _copy(self) -> tuple[Graph, frozenset[Value], PartNumbers]:
        """The main graph, to be rewritten, its parameters that are known before a call, and what begins parts."""
        graph = self.module.graphs[MAIN].clone()
        known = zip(graph.parameters, self._known, strict=True)
        arrivals = dict(enumerate(self.settings.arrivals))
        parts: dict[Value | Node, int] = {value: arrivals.get(source, 0)
                                          for value, source in zip(graph.parameters, self._sources, strict=True)}
        parts |= {graph.nodes[node]: part for part, node in enumerate(self.settings.begins, 1)
                  if node < len(graph.nodes)}
        return graph, frozenset(value for value, mine in known if mine), parts

    def _lowered(self, graph: Graph, weights: frozenset[Value], parts: PartNumbers,
                 quantization: Quantization) -> Version:
        convert_views(graph, quantization)
        inputs, results = self.settings.near
        near = {value for value, source in zip(graph.parameters, self._sources, strict=True) if source in inputs}
        near |= {graph.results[number] for number in results}
        lowered = lower(graph, weights, self.settings.resources, quantization, instances=self.settings.instances,
                        parts=parts, near=near)
        order(lowered.program)
        return Version(graph, weights, quantization, lowered)

    # ---- weights ------------------------------------------------------------------------------------------

    def _device(self, arrays: Arrays) -> tuple[Version, FunctionalSimulator]:
        digest = hashlib.blake2b(digest_size=16)
        for index in self._weights:
            digest.update(arrays[index].reshape(-1).view(np.uint8).data)
        key = digest.hexdigest()
        with self._lock:
            found: tuple[Version, FunctionalSimulator] = self._loaded.get_or_make(key, lambda: self._load(key, arrays))
            return found

    def _load(self, digest: str, arrays: Arrays) -> tuple[Version, FunctionalSimulator]:
        prepared = self._prepare(*(arrays[place] for place in self._prepared_of)) if self._prepare else []
        table = [*arrays, *prepared]
        contents = [table[place] for place in self._sources]
        if self.settings.narrow:
            self._version = self._packed.pop(digest, None) or self._narrow_version(arrays, contents)
        version = self.version
        known = known_arrays(version.graph, dict(zip(version.graph.parameters, contents, strict=True)))
        return version, version.loaded(known)


class NNPParts(Parts):
    """The parts of one Program: `whole` is the executable of the steps' graphs joined, whose inputs and results are
    those of the module's flow."""

    def __init__(self, whole: NNPExecutable, module: Module) -> None:
        self.whole = whole
        self.executables = {step.graph: NNPPart(self, number, module.graphs[step.graph], step)
                            for number, step in enumerate(module.flow.steps)}
        self._samples: list[dict[int, np.ndarray]] = []
        self._simulated: tuple[Program, Any, PartTimes] | None = None
        self._arrivals = {port.name: part for port, part in zip(whole.inputs, whole.settings.arrivals, strict=True)}

    @property
    def calibrated(self) -> bool:
        return not self.whole.settings.narrow or bool(self.whole.settings.samples or self._samples)

    def begin(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.whole.begin(arrays)

    def package(self) -> Package:
        return self.whole.package()

    def add_samples(self, samples: Sequence[Mapping[int, np.ndarray]]) -> None:
        """Take for each sample the arrays of some of the inputs, by number."""
        self._samples = self._samples or [{} for _ in samples]
        for found, sample in zip(self._samples, samples, strict=True):
            found.update(sample)
        wanted = range(len(self.whole.inputs))
        if all(len(found) == len(wanted) for found in self._samples):
            self.whole.calibrate([[found[number] for number in wanted] for found in self._samples])

    def simulate(self, steps: Sequence[Meanwhile], *, overlap: bool = True) -> PartTimes:
        key, compiled = (tuple(steps), overlap), self.whole.program
        if self._simulated is None or self._simulated[0] is not compiled or self._simulated[1] != key:
            program, places = with_steps(compiled, steps, self.whole.names, overlap=overlap)
            timeline = simulate(program)
            times = [(float(timeline.start[place]), float(timeline.end[place])) for place in places]
            parts = tuple(self._part_times(timeline, steps, places))
            found = PartTimes(timeline.seconds, parts, tuple(times), lambda: trace_text(timeline))
            self._simulated = compiled, key, found
        return self._simulated[2]

    def _part_times(self, timeline: Timeline, steps: Sequence[Meanwhile], places: Sequence[int]) -> Iterator[Times]:
        """A part begins when its first instruction does, the part before has ended, and the steps that make its inputs.
        So what a part loads ahead does not count twice."""
        latest, others = 0.0, set(places)
        for part in range(len(self.executables)):
            own = [number for number in timeline.program.part(part) if number not in others]
            if not own:
                yield latest, latest
                continue
            made = [place for step, place in zip(steps, places, strict=True)
                    if any(self._arrivals.get(name) == part for name in step.makes)]
            begin = float(max([timeline.start[own].min(), latest, *timeline.end[made]]))
            latest = float(timeline.end[own].max())
            yield min(begin, latest), latest  # what is made may be read later, as by a view


class NNPPart(Executable):
    """One of the parts of a call, number `part`: the graph of one step."""

    rough = True

    def __init__(self, parts: NNPParts, part: int, graph: Graph, step: Step) -> None:
        super().__init__(input_ports(graph), output_ports(graph))
        self._parts, self._part = parts, part
        inputs, results = ({port.name: number for number, port in enumerate(ports)}
                           for ports in (parts.whole.inputs, parts.whole.outputs))
        self._inputs = [inputs.get(value.name) for value in step.inputs]
        """The number of each input among those of the whole; None for one that an earlier part made."""
        self._results = [results.get(value.name) for value in step.outputs]

    def _given(self, arrays: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
        return {number: array for number, array in zip(self._inputs, arrays, strict=True) if number is not None}

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        wanted = [number for number in self._results if number is not None]
        found = iter(self._parts.whole.advance(self._part, self._given(arrays), wanted))
        return [np.empty(0) if number is None else next(found) for number in self._results]

    def calibrate(self, samples: Sequence[Arrays]) -> None:
        self._parts.add_samples([self._given(sample) for sample in samples])

    def simulated_seconds(self) -> float:
        begin, end = self._parts.simulate(()).parts[self._part]
        return end - begin

    def listing(self) -> str:
        """The Program of all parts for the first part; for others, where they begin in it."""
        program = self._parts.whole.program
        begin = program.part(self._part).start
        return self._parts.whole.listing() if not self._part else f"of the Program above, from instruction {begin} on\n"


def rebatched(graph: Graph, parts: int) -> Graph:
    """The graph for one of `parts` equal slices of the batch, axis 0 of all parameters that are no weights.

    Results that depend on the batch are slices of the original's, along axis 0; the others are whole.

    Raises:
        ConfigError: the batch is no multiple of `parts`, or a node mixes the images; the text names it.
    """
    found = Graph(graph.name)
    table: dict[Value, Value] = {}
    sliced: set[Value] = set()
    for parameter in graph.parameters:
        type_ = parameter.type
        if parameter.role is not Role.WEIGHT:
            type_ = type_.with_shape(_slice(parameter.shape, parts, f"input {parameter.name}"))
            sliced.add(parameter)
        table[parameter] = found.add_parameter(type_, parameter.name, parameter.role, origin=parameter.origin)
    for node in graph.nodes:
        attrs = dict(node.attrs)
        if any(value in sliced for value in node.inputs):
            attrs = _attrs(node, sliced, parts)
            sliced.update(node.outputs)
        twin = make_node(node.op.name, [table[value] for value in node.inputs], attrs, node.origin)
        for old, new in zip(node.outputs, twin.outputs, strict=True):
            wanted = _slice(old.shape, parts, str(node)) if old in sliced else old.shape
            if new.shape != wanted:
                raise ConfigError(_refused(node))
            table[old] = new
        found.nodes.append(twin)
    found.results = [table[result] for result in graph.results]
    return found


def _slice(shape: Shape, parts: int, what: str) -> Shape:
    if not shape or shape[0] % parts:
        raise ConfigError(f"{what} has shape {list(shape)}: expected a first axis that {parts} devices can share "
                          "evenly; run on one device, or with another batch")
    return (shape[0] // parts, *shape[1:])


def _refused(node: Node) -> str:
    return f"{node} mixes the images of a batch: several devices can't share it; run on one device"


def _attrs(node: Node, sliced: set[Value], parts: int) -> dict[str, Any]:
    """The attributes for a slice, when every operand in `sliced` and so every output is cut along axis 0."""
    attrs, name = dict(node.attrs), node.op.name
    shape = node.outputs[0].shape
    if name == "reshape":  # rows of elements stay in order, so an equal share of them is a slice of any first axis
        return {**attrs, "shape": _slice(shape, parts, str(node))}
    if not shape or shape[0] <= 1:
        raise ConfigError(_refused(node))
    way = ways(node).get(0)
    if way is None or any(own != 0 for own in way.outputs):
        raise ConfigError(_refused(node))
    for value, own in zip(node.inputs, way.inputs, strict=True):
        # A slice that the node needs whole, or an operand that is whole where it needs a slice.
        if (value in sliced) != (own == 0) and (value in sliced or (own is not None and value.shape[own] > 1)):
            raise ConfigError(_refused(node))
    if name == "broadcast":
        attrs["shape"] = _slice(shape, parts, str(node))
    elif name == "slice":
        attrs["end"] = (node.attrs["end"][0] // parts, *node.attrs["end"][1:])
    return attrs


PART = "part"
"""The code of such a package: what each device runs, a package itself."""


class NNPReplicas(Executable):
    """Each of `settings.devices` gets an equal slice of the batch, and all weights into a memory of its own.

    All run the same Program at once; that one simulator computes their numbers, one after the other, changes none.
    """

    def __init__(self, name: str, flow: Flow, part: NNPExecutable) -> None:
        """`flow`: one call of the whole. `part`: what each device runs."""
        super().__init__(*ports_of(flow))
        self.part, self._name, self._flow, self._count = part, name, flow, part.settings.devices
        self._cut = [value.role is not Role.WEIGHT for value in flow.inputs]
        self._joined = [own.type != mine.type for own, mine in zip(part.outputs, self.outputs, strict=True)]

    @staticmethod
    def compiled(target: str, graph: Graph, settings: Settings) -> NNPReplicas:
        """`target`: the backend's name. Raises ConfigError: the graph can't be cut along its batch."""
        flow, part = single_step(graph, PART), rebatched(graph, settings.devices)
        cut = [value.role is not Role.WEIGHT for value in flow.inputs]
        samples = tuple(piece for sample in settings.samples for piece in _slices(sample, cut, settings.devices))
        own = NNPExecutable(target, split_prepare(part), replace(settings, samples=samples))
        return NNPReplicas(graph.name, flow, own)

    @staticmethod
    def of(target: str, package: Package) -> NNPReplicas:
        """Return the replicas that the package was made from. Raises PackageError: the package is damaged, or its
        device is not known."""
        part = NNPExecutable.of(target, Package.from_plain(package.code[PART]))
        flow, own, count = package.flow, part.module.flow, part.settings.devices
        both = (*zip_longest(flow.inputs, own.inputs), *zip_longest(flow.results, own.results))
        fits = all(_fits(value, mine, count) for value, mine in both)
        if not fits or [step.graph for step in flow.steps] != [PART] or count < 2:
            raise PackageError(f"package {package.name}: what each of {count} devices runs is no part of it")
        return NNPReplicas(package.name, flow, part)

    @property
    def program(self) -> Program:
        return self.part.program

    def package(self) -> Package:
        return Package(self.part.target, self._name, self._flow, {PART: self.part.package().plain()})

    def report(self) -> Report:
        """The report of one device: the others do the same at the same time."""
        return self.part.report()

    def listing(self) -> str:
        """The listing of one device: the others run the same."""
        return self.part.listing()

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        slices = _slices(arrays, self._cut, self._count)
        self.part.calibrate(slices)
        parts = [self.part.run(each) for each in slices]
        return [np.concatenate(results) if joined else results[0]
                for joined, results in zip(self._joined, zip(*parts, strict=True), strict=True)]


def _fits(whole: Shared | None, part: Shared | None, count: int) -> bool:
    """True if `part` may be the slice of `whole` that one of `count` devices has.

    An input must be a slice; a weight or a result may also be all of `whole`.
    """
    if whole is None or part is None or whole.role is not part.role:
        return False
    slices = part.type.rank > 0 and part.type.with_shape((count * part.type.shape[0], *part.type.shape[1:]))
    return whole.type in ({slices} if part.role is Role.INPUT else {part.type, slices})


def _slices(arrays: Arrays, cut: Sequence[bool], count: int) -> list[list[np.ndarray]]:
    pieces: list[Sequence[np.ndarray]] = [np.split(array, count) if mine else [array] * count
                                          for array, mine in zip(arrays, cut, strict=True)]
    return [list(each) for each in zip(*pieces, strict=True)]
