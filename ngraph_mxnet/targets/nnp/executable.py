"""A graph compiled for the simulated device: weights, inputs and results between NumPy and the device's formats."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from ngraph_mxnet.errors import ConfigError, PackageError
from ngraph_mxnet.forks import ForkSafeLock
from ngraph_mxnet.ir.graph import Graph, Value
from ngraph_mxnet.ir.module import Changes, Module, changes_of
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.package import Package, decode_module, encode_graph
from ngraph_mxnet.package.pack import text
from ngraph_mxnet.passes.prepare import MAIN, PREPARE
from ngraph_mxnet.runtime.compile import compile
from ngraph_mxnet.runtime.executable import Executable, InputError, checked_array, ports_of
from ngraph_mxnet.targets.nnp.isa.assembler import print_program
from ngraph_mxnet.targets.nnp.isa.program import Program
from ngraph_mxnet.targets.nnp.lower.lowering import lower
from ngraph_mxnet.targets.nnp.lower.views import convert_views
from ngraph_mxnet.targets.nnp.packing import decode_settings, decode_version, encode_settings, encode_version
from ngraph_mxnet.targets.nnp.quantization import Quantization, uniform
from ngraph_mxnet.targets.nnp.quantize import quantize
from ngraph_mxnet.targets.nnp.report.report import Report, count_call, make_report, trace_text
from ngraph_mxnet.targets.nnp.simulate.functional import FunctionalSimulator
from ngraph_mxnet.targets.nnp.simulate.hazards import order
from ngraph_mxnet.targets.nnp.simulate.timing import Timeline, simulate
from ngraph_mxnet.targets.nnp.version import Arrays, Settings, Version

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
        self._samples: list[Arrays] = [[checked_array(port, array, what="calibration input") for port, array in
                          zip(self.inputs, sample, strict=True)] for sample in settings.samples]
        self._loaded: OrderedDict[bytes, tuple[Version, FunctionalSimulator]] = OrderedDict()
        self._lock = ForkSafeLock()
        self._timeline: Timeline | None = None
        self._packed = dict(versions or {})
        latest = next(reversed(self._packed.values()), None)
        self._version = latest if latest is not None or settings.narrow else self._real_version()

    def package(self) -> Package:
        """With the versions of the latest weights, which are not calibrated again."""
        graphs = self.module.graphs
        with self._lock:
            versions = {"": self._version} if not self.settings.narrow else {
                **self._packed, **{key.hex(): version for key, (version, _) in self._loaded.items()}}
            settings = {**encode_settings(self.settings, self._samples),
                        "versions": [(key, encode_version(version)) for key, version in versions.items() if version]}
        return Package(self.target, self.module.name, self.module.flow,
                       {name: encode_graph(graph) for name, graph in graphs.items()}, settings)

    @staticmethod
    def of(target: str, package: Package) -> NNPExecutable:
        """Return the executable that the package was made from.

        Raises:
            PackageError: the package is damaged, or its device is not known.
        """
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
        return [quantization.load(value, output)
                for value, output in zip(version.graph.results, outputs, strict=True)]

    def calibrate(self, samples: Sequence[Arrays]) -> None:
        """Take the scales for i8 from `samples`, each an array for each input, unless there are samples already."""
        self._samples = self._samples or list(samples)

    def simulated_seconds(self) -> float:
        return self.timeline.seconds

    # ---- versions -----------------------------------------------------------------------------------------

    def _real_version(self) -> Version:
        """Real numbers in the element of the settings, whatever the weights are."""
        graph, weights = self._copy()
        nothing = {value: np.zeros((), np.float32) for value in weights}
        return self._lowered(graph, weights, uniform(graph, nothing, self.settings.resources.element))

    def _narrow_version(self, arrays: Arrays, contents: Arrays) -> Version:
        """Products in i8, with scales for these weights."""
        graph, weights = self._copy()
        known = {value: content for value, content, mine in zip(graph.parameters, contents, self._known, strict=True)
                 if mine}
        samples: list[Arrays] = [
            [content if mine else sample[source] for content, mine, source in
             zip(contents, self._known, self._sources, strict=True)]
            for sample in [*self._samples] or [arrays]
        ]
        return self._lowered(graph, weights, quantize(graph, known, samples, element=self.settings.resources.element))

    def _copy(self) -> tuple[Graph, frozenset[Value]]:
        """The main graph, to be rewritten, and its parameters that are known before a call."""
        graph = self.module.graphs[MAIN].clone()
        known = zip(graph.parameters, self._known, strict=True)
        return graph, frozenset(value for value, mine in known if mine)

    def _lowered(self, graph: Graph, weights: frozenset[Value], quantization: Quantization) -> Version:
        convert_views(graph, quantization)
        lowered = lower(graph, weights, self.settings.resources, quantization, instances=self.settings.instances)
        order(lowered.program)
        return Version(graph, weights, quantization, lowered)

    # ---- weights ------------------------------------------------------------------------------------------

    def _device(self, arrays: Arrays) -> tuple[Version, FunctionalSimulator]:
        """The device with these weights loaded."""
        digest = hashlib.blake2b(digest_size=16)
        for index in self._weights:
            digest.update(arrays[index].reshape(-1).view(np.uint8).data)
        key = digest.digest()
        with self._lock:
            if key not in self._loaded:
                self._loaded[key] = self._load(key.hex(), arrays)
            self._loaded.move_to_end(key)
            while len(self._loaded) > _KEPT:
                self._loaded.popitem(last=False)
            return self._loaded[key]

    def _load(self, digest: str, arrays: Arrays) -> tuple[Version, FunctionalSimulator]:
        prepared = self._prepare(*(arrays[place] for place in self._prepared_of)) if self._prepare else []
        table = [*arrays, *prepared]
        contents = [table[place] for place in self._sources]
        if self.settings.narrow:
            self._version = self._packed.pop(digest, None) or self._narrow_version(arrays, contents)
        version = self.version
        known = dict(zip(version.graph.parameters, contents, strict=True))
        known |= {node.output: node.attrs["value"] for node in version.graph.nodes if node.op.name == "constant"}
        return version, version.loaded(known)
