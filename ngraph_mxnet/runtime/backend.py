"""What a backend is, and the table of all backends."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ngraph_mxnet.errors import ConfigError, UnsupportedError
from ngraph_mxnet.ir.graph import Graph, Node
from ngraph_mxnet.ir.printer import neighbourhood
from ngraph_mxnet.runtime.executable import Executable

# name: "module:class". The module is imported when the backend is first asked for.
_REGISTRY: dict[str, str] = {
    "CPU": "ngraph_mxnet.cpu.backend:CPUBackend",
    "HYBRID": "ngraph_mxnet.hybrid.backend:HybridBackend",
    "INTERPRETER": "ngraph_mxnet.interpreter.backend:InterpreterBackend",
    "NNP": "ngraph_mxnet.nnp.backend:NNPBackend",
}
# name: "module:function", from the bytes of `Executable.kept` to the native executable; it imports no compiler.
_LOADERS: dict[str, str] = {"CPU": "ngraph_mxnet.cpu.recipe:load"}
# name: "module:function", what `Backend.check_options` does, where that needs no compiler either.
_CHECKS: dict[str, str] = {"CPU": "ngraph_mxnet.cpu.options:check_options"}
# Backends with variants, `name:variant`: the class takes the variant's name, empty for the usual one.
_VARIED: set[str] = {"HYBRID", "NNP"}
_INSTANCES: dict[str, Backend] = {}


class Backend(ABC):
    """Compiles graphs. What every backend keeps, edge cases first:

    * `compile` owns the graph it gets and may rewrite it: `runtime.compile` hands it a copy.
    * A graph with a node for which `supports` gives a reason is refused with UnsupportedError before anything
      is compiled; no backend computes something else instead, or elsewhere, without saying so.
    * `supports` depends on the node, its types and attributes only, never on its neighbours: a partitioner
      asks it node by node, and a graph of supported nodes compiles.
    * An unknown option is a ConfigError.
    * Dead nodes, results that are parameters, a value returned twice, unused parameters, no nodes at all, and
      tensors without elements are valid.
    * A backend object has no state that changes, so several threads may compile at once.
    * The executable's inputs are the graph's parameters and its outputs the graph's results, in order.
    """

    name: str
    devices: tuple[str, ...] = ()
    """Of a backend that places nodes on others: their names. It takes the option `pins`, of devices by node."""
    computes_int8 = True
    """Whether it has kernels for products of 8-bit numbers; where not, a bridge may leave int8 to its framework."""

    @abstractmethod
    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse what `compile` refuses of its options for every graph.

        Raises:
            ConfigError: an option is unknown, or its value not allowed.
        """

    @abstractmethod
    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        """The executable of a verified graph.

        Raises:
            UnsupportedError: a node is not supported; the text says why.
            ConfigError: an option is unknown or its value not allowed.
        """

    @abstractmethod
    def supports(self, node: Node) -> str | None:
        """None when this backend runs the node, else the reason why not, as a phrase for people."""

    def pipeline(self) -> Sequence[Any]:
        """The passes (`passes.base.Pass`, `FixedPoint`) that make of a graph what is then compiled, in order."""
        return ()

    def plan(self, graph: Graph, options: Mapping[str, Any]) -> Any:
        """What the backend would do with a verified graph, which it may rewrite, where there is something to tell:
        prints as tables, `to_dict()` is for programs, `svg()` and `timeline_svg()` are pictures. Nothing is compiled.

        Raises:
            UnsupportedError, ConfigError: as `compile`.
        """
        if options:
            raise ConfigError(f"backend {self.name} makes no plan that options could change; HYBRID does")
        return None

    def notices(self) -> list[str]:
        """What the environment's settings ask of this backend and this machine can't give, each as a sentence."""
        return []

    def require_support(self, graph: Graph) -> None:
        """Refuse the graph if a node is not supported.

        Raises:
            UnsupportedError: naming the first such node, with its reason and the IR around it.
        """
        for node in graph.nodes:
            reason = self.supports(node)
            if reason is not None:
                raise UnsupportedError(
                    f"backend {self.name} does not run {node}: {reason}\n{neighbourhood(graph, node)}"
                )


def register_backend(name: str, where: str, *, varied: bool = False) -> None:
    """Add a backend: `where` is `module:class`. Registering a name twice is an error.

    `varied`: there are variants, `name:variant`; the class is called with the variant, empty for the usual one.
    """
    if name in _REGISTRY:
        raise ValueError(f"backend {name} is registered twice")
    _REGISTRY[name] = where
    if varied:
        _VARIED.add(name)


def backends() -> list[str]:
    """The names of all registered backends."""
    return sorted(_REGISTRY)


def canonical_name(name: str) -> str:
    """The name of the backend called `name`, in any case; nothing is imported. Whether it has the variant that a name
    such as `NAME:variant` asks for shows only in `get_backend`.

    Raises:
        ConfigError: there is none.
    """
    base, _, variant = name.strip().partition(":")
    key = base.upper()
    if key not in _REGISTRY:
        raise ConfigError(f"no backend {name!r}; known: {', '.join(backends())}")
    if variant and key not in _VARIED:
        raise ConfigError(f"backend {name!r}: {key} has no variants")
    return f"{key}:{variant.lower()}" if variant else key


def load_kept(name: str, content: bytes, held: Mapping[str, np.ndarray] | None = None) -> Any:
    """The native executable of backend `name` from what `Executable.kept` gave, for the same `held`."""
    module_name, function_name = _LOADERS[name.partition(":")[0]].split(":")
    return getattr(importlib.import_module(module_name), function_name)(content, held)


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the backend called `name` does not take, before there is a graph.

    Raises:
        ConfigError: there is no such backend or variant, an option is unknown, or its value not allowed.
    """
    key = canonical_name(name)
    if key in _CHECKS:
        module_name, function_name = _CHECKS[key].split(":")
        getattr(importlib.import_module(module_name), function_name)(options)
    else:
        get_backend(key).check_options(options)


def get_backend(name: str) -> Backend:
    """The backend called `name`, in any case; of those with variants, `name:variant`.

    Raises:
        ConfigError: there is none, it has no such variant, or its module is not part of this installation.
    """
    key = canonical_name(name)
    if key not in _INSTANCES:
        base, _, variant = key.partition(":")
        module_name, class_name = _REGISTRY[base].split(":")
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise ConfigError(f"backend {key} can't be loaded from {module_name}: {error}") from error
        arguments = (variant,) if base in _VARIED else ()
        _INSTANCES.setdefault(key, getattr(module, class_name)(*arguments))
    return _INSTANCES[key]
