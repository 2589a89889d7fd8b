"""The base class of backends, what they state of their costs and read of their options, and the table of all."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ngraph_mxnet.base import config, registry
from ngraph_mxnet.base.errors import ConfigError, PackageError, UnsupportedError
from ngraph_mxnet.base.variables import FileSetting
from ngraph_mxnet.ir.graph import Graph, Node, neighbourhood
from ngraph_mxnet.ir.module import Module
from ngraph_mxnet.ir.opdef import OpDef
from ngraph_mxnet.ir.types import TensorType
from ngraph_mxnet.program.executable import Executable, Parts
from ngraph_mxnet.program.package import Package
from ngraph_mxnet.program.program import IsaProgram
from ngraph_mxnet.program.ranges import Template


@dataclass(frozen=True)
class DeviceCosts:
    """The costs of one device.

    `seconds` of a node; `launch`: seconds to start a region; `transfer`: seconds to bring a tensor from the
    host's memory to the device's or back, None where it computes in the host's; `leaving`: those back, where they are
    others. `kind` says what they are, for people: `modelled`, `measured` or `simulated`. `memory` names the memory that
    the device addresses, in which tensors need no copy to any other device that addresses it; the host's is called
    `host`. Empty: it is not known. `apart`: why it can't be the host's. `compiled`: seconds of a graph as it was
    compiled, its transfers included and its launch not; None where no more than the nodes' is known.
    """

    seconds: Callable[[Node], float]
    launch: float
    transfer: Callable[[TensorType], float] | None
    kind: str
    memory: str = ""
    apart: str = ""
    leaving: Callable[[TensorType], float] | None = None
    compiled: Callable[[Graph, Executable], float | None] | None = None


HOST_MEMORY = "host"


_LONGEST_PATH = 4096


def require_known(backend: str, options: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Refuse options that the backend does not know; `known` maps each name to a line of help.

    Raises:
        ConfigError: naming the unknown ones and the known.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        texts = "; ".join(f"{name}: {text}" for name, text in known.items()) or "none"
        raise ConfigError(f"backend {backend} has no option {', '.join(unknown)}; its options: {texts}")


def file_digests(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the content digests of the files that options name, by option. A compiled graph depends on the contents as
    on the names."""
    return {name: FileSetting.of(value).digest for name, value in sorted(options.items())
            if isinstance(value, str) and len(value) < _LONGEST_PATH and os.path.isfile(value)}


def read_switch(options: Mapping[str, Any], name: str) -> bool | None:
    """An option that is on or off; None where it is not given.

    Raises:
        ConfigError: it is neither.
    """
    value = options.get(name)
    if value is None:
        return None
    if str(value) not in ("0", "1", "False", "True"):
        raise ConfigError(f"option {name}: found {value!r}, expected 0 or 1")
    return str(value) in ("1", "True")


def read_count(options: Mapping[str, Any], name: str, most: int) -> int | None:
    """An option that is a number from 1 to `most`; None where it is not given.

    Raises:
        ConfigError: it is none.
    """
    value = options.get(name)
    if value is None:
        return None
    try:
        count = int(str(value))
    except ValueError:
        count = 0
    if not 1 <= count <= most:
        raise ConfigError(f"option {name}: found {value!r}, expected 1 to {most}")
    return count


def read_samples(options: Mapping[str, Any]) -> tuple[Sequence[np.ndarray], ...]:
    """The option `calibration`: one sample, or a list of samples, each an array for each input; none by default.

    Raises:
        ConfigError: it is something else.
    """
    given = options.get("calibration") or ()
    if isinstance(given, (list, tuple)) and given and all(isinstance(array, np.ndarray) for array in given):
        given = [given]
    for found in (given, *given) if isinstance(given, (list, tuple)) else (given,):
        if not isinstance(found, (list, tuple)):
            raise ConfigError(f"option calibration: found {type(found).__name__}, expected a list of arrays, one for "
                              "each input, or a list of such lists")
    return tuple(given)


PRECISIONS = ("f32", "f16", "bf16", "int8")
"""From the finest to the coarsest."""

_INSTANCES: dict[str, Backend] = {}


class Backend(ABC):
    """Compiles graphs. All that others know of a backend they ask here: nobody compares its name or its class.

    `supports` and `compile` are what it must have. By its `pipeline` it says which passes it wants, by `costs` that
    HYBRID may place nodes on it, by `explain` and `profile` what it made of graphs.

    What every backend keeps, edge cases first:

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
    options: Mapping[str, str] = {}
    """The options that `compile` takes, with a line of help each."""
    devices: tuple[str, ...] = ()
    """The names of the backends on which this one places nodes; it then takes the option `pins`, devices by node."""
    channel_block: int = 1
    """Channels of an image that lie side by side in memory here. A training step saves images `[N, C, *S]` so, as
    `[N, C / block, *S, block]`, where the block divides C."""
    in_place: Mapping[str, Any] = {}
    """The options of graphs whose results are written over their parameters: of updates, which are not tuned."""

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse what `compile` refuses of its options for every graph.

        Raises:
            ConfigError: an option is unknown, or its value not allowed.
        """
        require_known(self.name, options, self.options)

    def precision(self, options: Mapping[str, Any]) -> str:
        """In what convolutions and matrix products compute that are compiled with these options, of `PRECISIONS`."""
        return "f32"

    def precision_of(self, graph: Graph, options: Mapping[str, Any]) -> str:
        """Describe the precision of a verified graph, which the method may rewrite. This is the result of `precision`,
        with the number of layers where only some layers have that precision."""
        return self.precision(options)

    @abstractmethod
    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        """The executable of a verified graph.

        Raises:
            UnsupportedError: a node is not supported; the text says why.
            ConfigError: an option is unknown or its value not allowed.
        """

    def compile_parts(self, module: Module, options: Mapping[str, Any],
                      near: Collection[str] = ()) -> Parts | None:
        """Compile the steps of a module, which run in this order on one device while other devices run what is between
        them. Return None where each graph is to be compiled for itself. The method owns the graphs as `compile` does.

        The flow's inputs are all that the steps read and do not make, inputs of any role; its results are those values
        that others read. `near` are names of inputs and results whose other makers and readers address the device's
        memory.

        Raises:
            UnsupportedError, ConfigError: as `compile`.
        """
        return None

    def template(self, graph: Graph, options: Mapping[str, Any]) -> Template | None:
        """Compile a verified graph for a range of sizes. Return None where each set of sizes has to be compiled for
        itself.

        Guards are in force during the call. Within `because` (`ir/ranges.py`) they answer questions about sizes. The
        method owns the graph as `compile` does.

        Raises:
            UnsupportedError, ConfigError: as `compile`.
        """
        return None

    def load_parts(self, package: Package, module: Module) -> Parts:
        """Load the parts that gave `package`, whose graphs are those of `module` (see `compile_parts`).

        Raises:
            PackageError: as `load`.
        """
        raise PackageError(f"backend {self.name} loads no parts of calls")

    def load(self, package: Package) -> Executable | Template:
        """Load the executable that gave `package`, or the template if the package has symbols. The content of the
        package is checked before it runs, whoever made the package.

        Raises:
            PackageError: the package is not one of this backend, or this machine does not run it.
        """
        raise PackageError(f"backend {self.name} loads no packages")

    def artefact_programs(self, graph: Graph, options: Mapping[str, Any], isas: Sequence[str],
                          weights: Mapping[str, np.ndarray]) -> Iterator[IsaProgram]:
        """Yield the programs that the runtime runs for a verified graph, which the method may rewrite. There is one for
        each instruction set in `isas`, or for all instruction sets if `isas` is empty. Parameters whose names are in
        `weights` are no inputs of the programs. Values that depend only on these parameters are computed now, by the
        kernels that would do so here. Options that only say how to run here have no effect. If inputs have symbols in
        their sizes, guards are in force until the last program is made, as for `template`.

        Raises:
            UnsupportedError, ConfigError: as `compile`; or the backend makes no such programs.
            PackageError: the runtime would not run it.
        """
        others = backends_that(lambda other: type(other).artefact_programs is not Backend.artefact_programs)
        raise ConfigError(f"backend {self.name} makes no programs that the runtime could run; such as do: {others}")

    @abstractmethod
    def supports(self, node: Node) -> str | None:
        """None when this backend runs the node, else the reason why not, as a phrase for people."""

    def implements(self, op: OpDef) -> bool:
        """True if the backend runs some nodes of this op."""
        return op.has_reference

    def pipeline(self) -> Sequence[Any]:
        """The passes (`passes.base.Pass`, `FixedPoint`) that make of a graph what is then compiled, in order."""
        return ()

    def plan(self, graph: Graph, options: Mapping[str, Any]) -> Any:
        """Return the plan of the backend for a verified graph, which the method may rewrite; None where there is
        nothing to tell. The plan prints as tables, `to_dict()` is for programs, `svg()` and `timeline_svg()` are
        pictures. Nothing is compiled.

        Raises:
            UnsupportedError, ConfigError: as `compile`.
        """
        if options:
            others = backends_that(lambda other: type(other).plan is not Backend.plan)
            raise ConfigError(f"backend {self.name} makes no plan that options could change; such as do: {others}")
        return None

    def explain(self, graphs: Sequence[Graph]) -> Any:
        """How the backend computes each of these graphs, which are compiled for it: prints as tables; `to_dict()` is
        for programs, and each of its values has an entry for each graph.

        Raises:
            UnsupportedError: as `compile`.
            ConfigError: there is nothing to tell, whatever the graphs.
        """
        others = backends_that(lambda other: type(other).explain is not Backend.explain)
        raise ConfigError(f"the backend {self.name} has no kernels to tell of; such as have: {others}")

    def profile(self, call: Callable[[], Any], rounds: int, explained: Any = None) -> Any:
        """Measure where the time goes in `call`, which runs a graph that this backend compiled. `call` is run `rounds`
        times, after a few runs that do not count. `explained` is the result of `explain` for the graph.

        Returns:
            A report that prints as tables; `to_dict()` is for programs.

        Raises:
            ConfigError: the backend can't measure that.
        """
        others = backends_that(lambda other: type(other).profile is not Backend.profile)
        raise ConfigError(f"profiles tell of kernels, which {self.name} does not have; such as have: {others}")

    # ---- beside others: see docs/hybrid.md ------------------------------------------------------------------

    def costs(self, graph: Graph, options: Mapping[str, Any]) -> DeviceCosts | None:
        """Return the costs of nodes of `graph` here, if this backend, compiling with `options`, can share a graph with
        others. Return None where no costs are known.

        Raises:
            ConfigError: an option's value is not allowed, or not for this graph.
        """
        return None

    def unfit(self, graph: Graph, options: Mapping[str, Any],
              samples: Sequence[Sequence[np.ndarray]]) -> Mapping[Node, str]:
        """Why nodes should run elsewhere although `supports` lets them: by the options, or as samples tell, arrays for
        all parameters each. Such a node stays here if it is pinned here or no other backend runs it."""
        return {}

    def beside(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options for a part of a graph whose rest runs elsewhere: settings of the environment that are meant for
        others only may be replaced by its own."""
        return options

    def machine(self) -> Mapping[str, Any]:
        """Return the facts of this machine that the backend uses, by name, as plain data for people. `kernels` is the
        instruction set of the backend's kernels, if the backend has kernels.

        Raises:
            ConfigError: a setting asks for what the machine lacks.
        """
        return {}

    def notices(self) -> list[str]:
        """Return a sentence for each environment setting that asks of this backend what this machine can't give."""
        return []

    def require_support(self, graph: Graph) -> None:
        """Refuse the graph if a node is not supported.

        Raises:
            UnsupportedError: naming the first such node, with its reason and the IR around it.
        """
        require_nodes(graph, self.supports, self.name)


def require_nodes(graph: Graph, reason_of: Callable[[Node], str | None], who: str) -> None:
    """Raises UnsupportedError: there is a reason why the backend `who` does not run a node; the text names the first
    such node, with its reason and the IR around it."""
    for node in graph.nodes:
        reason = reason_of(node)
        if reason is not None:
            raise UnsupportedError(f"backend {who} does not run {node}: {reason}\n{neighbourhood(graph, node)}")


def register_backend(name: str, where: str, *, varied: bool = False) -> None:
    """Add a backend: `where` is `module:class`. Registering a name twice is an error.

    `varied`: there are variants, `name:variant`; the class is called with the variant, empty for the usual one.
    """
    if registry.find(name) is not None:
        raise ValueError(f"backend {name} is registered twice")
    registry.TARGETS[name] = registry.Place(where, varied)


def remove_backend(name: str) -> None:
    """Take away a backend that `register_backend` added, with its variants."""
    del registry.TARGETS[name]
    for key in [key for key in _INSTANCES if key.partition(":")[0] == name]:
        del _INSTANCES[key]


def backends() -> list[str]:
    """The names of all registered backends, and of those that other distributions bring."""
    return registry.known()


def backends_that(does: Callable[[Backend], Any]) -> str:
    """The names of all backends of which `does` is true, for messages: each is loaded to be asked."""
    found = []
    for name in backends():
        with contextlib.suppress(ConfigError):  # a broken one, of another distribution
            found += [name] if does(get_backend(name)) else []
    return ", ".join(found)


def canonical_name(name: str | None = None) -> str:
    """The name of the backend called `name`, in any case, or of NGRAPH_BACKEND; nothing is imported. Whether it has the
    variant that a name such as `NAME:variant` asks for shows only in `get_backend`. Raises ConfigError: there is none.
    """
    name = config.get("NGRAPH_BACKEND") if name is None else name
    base, _, variant = str(name).strip().partition(":")
    key = base.upper()
    if registry.find(key) is None:
        raise ConfigError(f"no backend {name!r}; known: {', '.join(backends())}")
    if registry.find(key, variant) is None:
        raise ConfigError(f"backend {name!r}: {key} has no variants")
    return f"{key}:{variant.lower()}" if variant else key


def _place(key: str) -> registry.Place:
    """Return the place of the backend with this key, which must exist."""
    found = registry.find(key.partition(":")[0])
    assert found is not None
    return found


def load(package: Package) -> Executable:
    """Load the executable that `package` was made of, by its target, without compiling again.

    Raises:
        ConfigError: there is no such target here.
        PackageError: the target did not make the package, it is for a range of sizes, or this machine can't run it.
    """
    found = _load(package)
    if isinstance(found, Template):
        raise PackageError(f"package {package.name} is for a range of sizes")
    return found.hide_state()


def load_template(package: Package) -> Template:
    """Load, as `load` does, the template of a package that was compiled for a range of sizes.

    Raises:
        ConfigError, PackageError: as `load`.
    """
    found = _load(package)
    if not isinstance(found, Template):
        raise PackageError(f"package {package.name} is for no range of sizes")
    return found


def _load(package: Package) -> Executable | Template:
    key = canonical_name(package.target)
    quick = _place(key).load
    found: Executable | Template = registry.loaded(quick)(package) if quick else get_backend(key).load(package)
    return found


def load_file(name: str, path: str | os.PathLike[str], options: Mapping[str, Any]) -> Any:
    """Load a compiled file (docs/artefact.md) by the backend called `name`. The result is called with arrays as an
    `Executable` is.

    Raises:
        ConfigError: there is no such backend, it runs no such files, or an option is not allowed or not for this file.
        PackageError: the file is damaged, or not for this machine.
        OSError: the file can't be read.
    """
    key = canonical_name(name)
    quick = _place(key).load_file
    if not quick:
        others = ", ".join(other for other, place in registry.TARGETS.items() if place.load_file)
        raise ConfigError(f"backend {key} runs no compiled files; such as do: {others}")
    return registry.loaded(quick)(path, options)


def unlike(name: str, options: Mapping[str, Any], instruction_set: str, precision: str) -> str | None:
    """Why a compiled file's programs, for this instruction set and of this precision, are not what the backend called
    `name` would compile with these options, as a phrase for people; None if they are."""
    found = _place(canonical_name(name)).unlike
    if not found:
        return f"{name} makes no such files"
    reason: str | None = registry.loaded(found)(options, instruction_set, precision)
    return reason


def names_matter(name: str) -> bool:
    """True if the result of the backend called `name` depends on names of nodes, by which nodes may be pinned, or
    reports them."""
    return not _place(canonical_name(name)).load


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the backend called `name` does not take, before there is a graph.

    Raises:
        ConfigError: there is no such backend or variant, an option is unknown, or its value not allowed.
    """
    key = canonical_name(name)
    if check := _place(key).check:
        registry.loaded(check)(options)
    else:
        get_backend(key).check_options(options)


def get_backend(name: str | None = None) -> Backend:
    """The backend called `name`, in any case, or that of NGRAPH_BACKEND; of those with variants, `name:variant`.

    Raises:
        ConfigError: there is none, it has no such variant, its module is not part of this installation, or the
            distribution that brings it is broken.
    """
    key = canonical_name(name)
    if key not in _INSTANCES:
        place = _place(key)
        try:
            _INSTANCES.setdefault(key, _from_outside(key, place) if place.origins else _made(key, place))
        except ImportError as error:
            raise ConfigError(f"backend {key} can't be loaded from {place.where}: {error}") from error
    return _INSTANCES[key]


def _made(key: str, place: registry.Place) -> Backend:
    variant = key.partition(":")[2]
    made = registry.loaded(place.where)
    found: Backend = made(variant) if place.varied or variant else made()
    return found


def _from_outside(key: str, place: registry.Place) -> Backend:
    """Whatever is wrong with it, others work on."""
    origin, others = " and ".join(place.origins), ", ".join(registry.TARGETS)
    if len(place.origins) > 1:
        raise ConfigError(f"backend {key} comes with {origin}: uninstall all of these distributions but one")
    try:
        found = _made(key, place)
        if not isinstance(found, Backend):
            raise TypeError(f"{place.where} makes a {type(found).__name__}, expected a runtime.backend.Backend")
    except ConfigError:
        raise  # such as of a variant that it has not
    except Exception as error:  # it is others' code
        raise ConfigError(f"backend {key} can't be loaded: the entry point {place.where} of the distribution {origin} "
                          f"fails with {error!r}. Update or uninstall {origin}, or use one of {others}") from error
    return found
