"""A graph compiled for the simulated device: weights, inputs and results between NumPy and the device's formats."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.nnp.assembler import print_program
from ngraph_mxnet.nnp.functional import FunctionalSimulator
from ngraph_mxnet.nnp.hazards import order
from ngraph_mxnet.nnp.lower.conversions import convert_views
from ngraph_mxnet.nnp.lower.lowering import Lowered, lower
from ngraph_mxnet.nnp.lower.target import Target
from ngraph_mxnet.nnp.program import Program
from ngraph_mxnet.nnp.quantization import Quantization, uniform
from ngraph_mxnet.nnp.quantize import quantize
from ngraph_mxnet.nnp.report import Report, make_report, trace_text
from ngraph_mxnet.nnp.summary import count_call
from ngraph_mxnet.nnp.timing import Timeline, simulate
from ngraph_mxnet.passes.prepare import Split, split_prepare
from ngraph_mxnet.runtime.compile import compile
from ngraph_mxnet.runtime.executable import Executable, checked_array, input_ports, output_ports

_KEPT = 2
"""Sets of weights whose loaded device is kept."""

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Settings:
    """What is compiled for: products in i8 if `narrow`, calibrated on `samples` (arrays for all inputs, weights too) or
    else on the first call's; `instances` parts of the batch, each on engines of its own; so many `devices`."""

    target: Target
    instances: int
    narrow: bool = False
    samples: tuple[Arrays, ...] = ()
    devices: int = 1


@dataclass(frozen=True)
class Version:
    """The main graph, perhaps with conversions, as it is stored and lowered."""

    graph: Graph
    weights: frozenset[Value]
    quantization: Quantization
    lowered: Lowered

    @property
    def program(self) -> Program:
        """The Program, its constants still empty."""
        return self.lowered.program

    def loaded(self, contents: Mapping[Value, np.ndarray]) -> FunctionalSimulator:
        """A device that holds the weights and constants of `contents`."""
        store = self.quantization.store
        constants = {buffer: store(value, contents[value]).tobytes() for value, buffer in self.lowered.weights.items()}
        for node, buffer in self.lowered.scales.items():
            constants[buffer] = self.quantization.sum_scale(node).astype(np.float32).tobytes()
        return FunctionalSimulator(replace(self.program, constants=constants))


class NNPExecutable(Executable):
    """Runs Programs on the functional simulator.

    What depends on weights only is computed in float32 and rounded once; the device that holds the result is kept by
    the hash of all weights. In i8 each set of weights has scales and a Program of its own.
    """

    rough = True

    def __init__(self, graph: Graph, settings: Settings) -> None:
        super().__init__(input_ports(graph), output_ports(graph))
        self.settings = settings
        self._split: Split = split_prepare(graph)
        self._prepare = compile(self._split.prepare, "INTERPRETER") if self._split.prepare.results else None
        self._cacheable = [i for i, parameter in enumerate(graph.parameters) if parameter.cacheable]
        self._known = [source.kind == "prepared" or graph.parameters[source.index].cacheable
                       for source in self._split.main_sources]
        self._samples: list[Arrays] = [[checked_array(port, array, what="calibration input") for port, array in
                          zip(self.inputs, sample, strict=True)] for sample in settings.samples]
        self._loaded: OrderedDict[bytes, tuple[Version, FunctionalSimulator]] = OrderedDict()
        self._lock = ForkSafeLock()
        self._timeline: Timeline | None = None
        self._version = None if settings.narrow else self._real_version()

    @property
    def version(self) -> Version:
        """How the graph is lowered.

        Raises:
            ConfigError: there are no scales for i8 yet.
        """
        if self._version is None:
            raise ConfigError("precision int8 has no scales before the first call: call the executable once, on inputs "
                              "like those to come, or give arrays by the option calibration and then call it")
        return self._version

    @property
    def program(self) -> Program:
        """The Program of the latest weights; without them."""
        return self.version.program

    @property
    def timeline(self) -> Timeline:
        """The simulated run of `program`, which does not depend on data."""
        program = self.program
        if self._timeline is None or self._timeline.program is not program:
            self._timeline = simulate(program)
        return self._timeline

    def report(self) -> Report:
        """What one call takes on the device: simulated time, utilisation, traffic, energy. Prints with `rich`.

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
        for value, known, source in zip(version.graph.parameters, self._known, self._split.main_sources, strict=True):
            array = np.zeros(value.shape, value.type.element.numpy) if known else arrays[source.index]
            inputs.append(quantization.store(value, array))
        outputs = device.run(inputs)
        count_call(version.program, self.settings.devices)
        return [quantization.load(value, output)
                for value, output in zip(version.graph.results, outputs, strict=True)]

    def calibrate(self, samples: Sequence[Arrays]) -> None:
        """Take the scales for i8 from `samples`, each an array for each input, unless there are samples already."""
        self._samples = self._samples or list(samples)

    def simulated_seconds(self) -> float:
        return self.timeline.seconds

    # ---- versions -----------------------------------------------------------------------------------------

    def _real_version(self) -> Version:
        """Real numbers in the target's element, whatever the weights are."""
        graph, weights = self._copy()
        nothing = {value: np.zeros((), np.float32) for value in weights}
        return self._lowered(graph, weights, uniform(graph, nothing, self.settings.target.element))

    def _narrow_version(self, arrays: Arrays, contents: Arrays) -> Version:
        """Products in i8, with scales for these weights."""
        graph, weights = self._copy()
        known = {value: content for value, content, mine in zip(graph.parameters, contents, self._known, strict=True)
                 if mine}
        samples: list[Arrays] = [
            [content if mine else sample[source.index] for content, mine, source in
             zip(contents, self._known, self._split.main_sources, strict=True)]
            for sample in [*self._samples] or [arrays]
        ]
        return self._lowered(graph, weights, quantize(graph, known, samples, element=self.settings.target.element))

    def _copy(self) -> tuple[Graph, frozenset[Value]]:
        """The main graph, to be rewritten, and its parameters that are known before a call."""
        graph = self._split.main.clone()
        known = zip(graph.parameters, self._known, strict=True)
        return graph, frozenset(value for value, mine in known if mine)

    def _lowered(self, graph: Graph, weights: frozenset[Value], quantization: Quantization) -> Version:
        convert_views(graph, quantization)
        lowered = lower(graph, weights, self.settings.target, quantization, instances=self.settings.instances)
        order(lowered.program)
        return Version(graph, weights, quantization, lowered)

    # ---- weights ------------------------------------------------------------------------------------------

    def _device(self, arrays: Arrays) -> tuple[Version, FunctionalSimulator]:
        """The device with these weights loaded."""
        digest = hashlib.blake2b(digest_size=16)
        for index in self._cacheable:
            digest.update(arrays[index].reshape(-1).view(np.uint8).data)
        key = digest.digest()
        with self._lock:
            if key not in self._loaded:
                self._loaded[key] = self._load(arrays)
            self._loaded.move_to_end(key)
            while len(self._loaded) > _KEPT:
                self._loaded.popitem(last=False)
            return self._loaded[key]

    def _load(self, arrays: Arrays) -> tuple[Version, FunctionalSimulator]:
        prepared = self._prepare(*(arrays[i] for i in self._split.prepare_inputs)) if self._prepare else []
        contents = [(prepared if source.kind == "prepared" else arrays)[source.index]
                    for source in self._split.main_sources]
        if self.settings.narrow:
            self._version = self._narrow_version(arrays, contents)
        version = self.version
        table = dict(zip(version.graph.parameters, contents, strict=True))
        table |= {node.output: node.attrs["value"] for node in version.graph.nodes if node.op.name == "constant"}
        return version, version.loaded(table)
