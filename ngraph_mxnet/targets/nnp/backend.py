"""The backend NNP: a simulated Intel Nervana NNP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.errors import ConfigError
from ngraph_mxnet.ir.builder import make_node
from ngraph_mxnet.ir.graph import Graph, Node, Value
from ngraph_mxnet.ir.types import Role
from ngraph_mxnet.package import Package
from ngraph_mxnet.passes.base import FixedPoint, Pass, PassManager
from ngraph_mxnet.passes.clusters import InlineBodies
from ngraph_mxnet.passes.pipelines import shared_passes
from ngraph_mxnet.passes.prepare import split_prepare
from ngraph_mxnet.runtime.backend import Backend
from ngraph_mxnet.runtime.costs import DeviceCosts
from ngraph_mxnet.runtime.options import read_count, read_samples
from ngraph_mxnet.targets.nnp.cost import device_costs
from ngraph_mxnet.targets.nnp.device import Device, load_device
from ngraph_mxnet.targets.nnp.executable import NNPExecutable
from ngraph_mxnet.targets.nnp.lower.places import Resources, resources_of
from ngraph_mxnet.targets.nnp.quantize import overflowing
from ngraph_mxnet.targets.nnp.replicas import PART, NNPReplicas
from ngraph_mxnet.targets.nnp.support import unsupported
from ngraph_mxnet.targets.nnp.version import Settings

OPTIONS = {
    "device": "a product, or product:mode, such as nnp-i-1100:12W (default: that of the backend's name)",
    "precision": "f16 or int8 on NNP-I, bf16 on NNP-T (default: NGRAPH_PRECISION, else f16 or bf16)",
    "calibration": "for int8: arrays for all inputs, in order, or a list of such (default: those of the first call)",
    "mode": "throughput: parts of the batch on engines of their own; latency: few such parts, each on many engines "
            "(default: throughput if the batch is larger than 1)",
    "devices": "how many devices share the batch, each with its own memory (default: 1)",
    "instances": "into how many parts the batch is cut, each on engines of its own (default: by mode)",
}
_USUAL = "nnp-i-1100"
_MOST_DEVICES = 1024
_MODES = ("throughput", "latency")
_LATENCY_INSTANCES = 2
"""NNP-I's latency mode is "1x2": two instances of batch 1 (Hot Chips 31)."""


class NNPBackend(Backend):
    """See `Backend`. Real numbers are stored as f16 (NNP-I) or bf16 (NNP-T), and computed on in float32; with precision
    int8 products are in i8.

    `device` is a product or product:mode of `devices()`.
    """

    name = "NNP"
    options = OPTIONS

    def __init__(self, device: str = "") -> None:
        self._device = load_device(device or _USUAL)
        if device:
            self.name = f"NNP:{device}"

    def supports(self, node: Node) -> str | None:
        if node.op.name == "fused":
            return next(filter(None, map(self.supports, node.attrs["body"].nodes)), None)
        if node.op.name == "convolution_bias_add_scale_shift":
            return next(filter(None, (self.supports(part) for part in _parts(node))), None)
        return unsupported(node, _resources(self._device))

    def check_options(self, options: Mapping[str, Any]) -> None:
        super().check_options(options)
        device, _ = self.asked(options)
        if (options.get("mode") or _MODES[0]) not in _MODES:
            raise ConfigError(f"option mode: found {options['mode']!r}, expected {' or '.join(_MODES)}")
        read_count(options, "devices", _MOST_DEVICES)
        read_count(options, "instances", len(_resources(device).engines))
        read_samples(options)

    def pipeline(self) -> Sequence[Pass | FixedPoint]:
        """The shared groups, before which ops that the engines compute in two steps become two."""
        return [InlineBodies(), _SplitSums(), *shared_passes()]

    def precision(self, options: Mapping[str, Any]) -> str:
        element = self.asked(options)[1]
        return "int8" if element == "i8" else element

    def costs(self, graph: Graph, options: Mapping[str, Any]) -> DeviceCosts:
        return device_costs(*self.asked(options))

    def unfit(self, graph: Graph, options: Mapping[str, Any],
              samples: Sequence[Sequence[np.ndarray]]) -> Mapping[Node, str]:
        return overflowing(graph, samples, self.asked(options)[1])

    def beside(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return `options`, with the precision f32 added if the device lacks the precision of NGRAPH_PRECISION.

        f32 stands for the device's own element. A precision in `options` is left as it is.
        """
        if "precision" not in options:
            try:
                self.asked(options)
            except ConfigError:
                return {**options, "precision": "f32"}
        return options

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> NNPExecutable | NNPReplicas:
        self.check_options(options)
        device, element = self.asked(options)
        self.require_support(graph)
        PassManager(self.pipeline()).run(graph)
        self.require_support(graph)
        samples = read_samples(options)
        for sample in samples:
            if len(sample) != len(graph.parameters):
                raise ConfigError(f"option calibration: found a sample of {len(sample)} arrays, expected "
                                  f"{len(graph.parameters)}, one for each input, weights too")
        devices = read_count(options, "devices", _MOST_DEVICES) or 1
        resources, instances = _divided(_resources(device), graph, options)
        settings = Settings(resources, instances, element == "i8", samples, devices)
        if devices > 1:
            return NNPReplicas.compiled(self.name, graph, settings)
        return NNPExecutable(self.name, split_prepare(graph), settings)

    def load(self, package: Package) -> NNPExecutable | NNPReplicas:
        return (NNPReplicas if PART in package.code else NNPExecutable).of(self.name, package)

    def asked(self, options: Mapping[str, Any]) -> tuple[Device, str]:
        """The device, and what its products are of (`i8`, `f16` or `bf16`), that options and environment ask for.

        Raises:
            ConfigError: there is no such device, or it has no such precision.
        """
        device = load_device(str(options["device"])) if options.get("device") else self._device
        narrow = _is_int8(str(options.get("precision") or config.get("NGRAPH_PRECISION")), device)
        return device, "i8" if narrow else _element(device)


def _element(device: Device) -> str:
    """Return the element that real numbers are stored in: f16 if the device's grid has it, else bf16."""
    return "f16" if "f16" in device.grids else "bf16"


def _resources(device: Device) -> Resources:
    return resources_of(device, _element(device))


def _is_int8(wanted: str, device: Device) -> bool:
    """True if products are to be in i8. `f32`, NGRAPH_PRECISION's default, stands for the device's own element."""
    known = [_element(device), *(["int8"] if "i8" in device.grids else [])]
    if wanted not in ("f32", *known):
        raise ConfigError(f"option precision: found {wanted!r}, expected {' or '.join(known)} on {device.name}")
    return wanted == "int8"


def _divided(resources: Resources, graph: Graph, options: Mapping[str, Any]) -> tuple[Resources, int]:
    """The engines that are used, and into how many parts the batch is cut: there is no more than one instance for each
    image, so a small batch leaves the other instances' engines idle."""
    batch = next((p.shape[0] for p in graph.parameters if p.shape and p.role is not Role.WEIGHT), 1)
    mode, engines = options.get("mode") or ("throughput" if batch > 1 else ""), len(resources.engines)
    usual = {"throughput": engines, "latency": _LATENCY_INSTANCES, "": 1}
    instances = read_count(options, "instances", engines) or usual[mode]
    used = max(min(instances, batch), 1)
    return resources.with_engines(used * (engines // instances)), used


class _SplitSums:
    """A pass: convolution and scale_shift of the op that is both, which no pass of the NNP makes."""

    name = "split_sums"

    def run(self, graph: Graph) -> bool:
        nodes: list[Node] = []
        replaced: dict[Value, Value] = {}
        for node in graph.nodes:
            if node.op.name == "convolution_bias_add_scale_shift":
                total, scaled = _parts(node)
                replaced |= {node.outputs[0]: total.output, node.outputs[1]: scaled.output}
                nodes += [total, scaled]
            else:
                nodes.append(node)
        graph.nodes = nodes
        graph.replace(replaced)
        return bool(replaced)


def _parts(node: Node) -> tuple[Node, Node]:
    names = [name for name in node.attrs if name not in ("lower2", "upper2")]
    total = make_node("convolution_bias_add", node.inputs[:4], {name: node.attrs[name] for name in names}, node.origin)
    bounds = {"lower": node.attrs["lower2"], "upper": node.attrs["upper2"]}
    return total, make_node("scale_shift", [total.output, *node.inputs[4:]], bounds, node.origin)
