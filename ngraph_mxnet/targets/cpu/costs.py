"""The cost of nodes on the CPU: modelled from a measured peak, or measured."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from math import fsum
from typing import Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.ir.graph import Builder, Graph, Node, node_cost, print_graph, touched
from ngraph_mxnet.program.backend import DeviceCosts, get_backend
from ngraph_mxnet.program.cache import get_or_make
from ngraph_mxnet.program.executable import Executable
from ngraph_mxnet.program.feeds import SEED, random_inputs
from ngraph_mxnet.program.program_cache import program_key
from ngraph_mxnet.program.trace import recorder
from ngraph_mxnet.targets.cpu.machine.isa import choose_isa
from ngraph_mxnet.targets.cpu.machine.tuning import machine_identity

CONTRACTION_SHARE = 0.75
"""A guess: contractions reach this share of the peak, as those of ResNet-50 do; small and depthwise ones less."""
ELEMENT_OPERATIONS = 16
"""A guess: what else computes takes as long for an element as this many operations of the peak do."""
NODE_SECONDS = 1e-6
"""A guess: a barrier, and handing out the tasks."""
ROUNDS = 5
"""Calls that a measurement takes the medians of."""


@dataclass(frozen=True)
class Machine:
    """This machine, measured: operations and bytes a second in 1e9, and the seconds of a call that computes nothing."""

    gflops: float
    gigabytes: float
    call: float


def modelled(threads: int) -> DeviceCosts:
    """On `threads` threads."""
    machine = this_machine(threads)
    return DeviceCosts(lambda node: node_seconds(node, machine), machine.call, None, "modelled")


def node_seconds(node: Node, machine: Machine) -> float:
    """The longer of computing, at the rates above, and of moving what the node reads and writes through memory."""
    cost = node_cost(node)
    moved = sum(elements * value.type.element.size for value, elements in touched(node).items())
    operations = 2 * cost.macs / CONTRACTION_SHARE + cost.operations * ELEMENT_OPERATIONS
    return NODE_SECONDS + max(operations / machine.gflops, moved / machine.gigabytes) / 1e9


def measured(graph: Graph, options: Mapping[str, Any], threads: int) -> DeviceCosts:
    """Compiled with `options`, on `threads` threads, from running `graph` on random inputs.

    A node's kernels are found by its name; of nodes with one name each has a share as the model says. What the backend
    fuses into another node costs nothing, and what is no kernel's time, such as waiting, belongs to no node. What is
    compiled costs the time of its own kernels.

    Raises:
        ConfigError: the CPU does not run a node, or NGRAPH_PROFILE is set.
    """
    backend = get_backend("CPU")
    refused = next((node for node in graph.nodes if backend.supports(node)), None)
    if refused is not None:
        raise ConfigError(f"costs=measured runs the whole graph on the CPU, which does not run {refused}; "
                          "use costs=modelled")
    machine, by_name = this_machine(threads), kernel_seconds(graph, options)
    model = {node: node_seconds(node, machine) for node in graph.nodes}
    of_name: dict[str, float] = defaultdict(float)
    for node, seconds in model.items():
        of_name[str(node)] += seconds
    table = {node: by_name.get(str(node), 0.0) * seconds / of_name[str(node)] for node, seconds in model.items()}
    return DeviceCosts(lambda node: table[node], machine.call, None, "measured",
                       compiled=lambda part, made: fsum(kernel_seconds(part, options, made).values()))


def kernel_seconds(graph: Graph, options: Mapping[str, Any], executable: Executable | None = None) -> dict[str, float]:
    """Seconds that the kernels of each node take, by the node as it is printed: medians of some calls on random inputs.
    They are kept in the folder of NGRAPH_CACHE_DIR. `executable`: of `graph`, if it is compiled already. Raises
    ConfigError: NGRAPH_PROFILE is set."""
    options = {name: value for name, value in options.items() if name != "costs"}

    def measure() -> bytes:
        from ngraph_mxnet.targets.cpu.report import seconds_by_node  # it prints tables, which running a graph does not

        made: Any = executable or get_backend("CPU").compile(graph.clone(), options)
        arrays = list(random_inputs(np.random.default_rng(SEED), graph).values())
        return json.dumps(seconds_by_node(lambda: made.run(arrays), made.settings.threads, ROUNDS)).encode()

    what = hashlib.sha256(print_graph(graph).encode()).hexdigest()
    key = f"{machine_identity()} {program_key(what, 'CPU', options)}"
    return {name: float(seconds) for name, seconds in json.loads(get_or_make("kernels", key, measure,
                                                                             of_build=True)).items()}


@cache
def this_machine(threads: int) -> Machine:
    """Measured once, which takes about a second, and kept in the folder of NGRAPH_CACHE_DIR."""
    from ngraph_mxnet import _core

    isa = choose_isa(_core.cpu_features())

    def measure() -> bytes:
        # The measurement takes the recorder of a process, which NGRAPH_PROFILE may have taken.
        return json.dumps(asdict(measure_machine(threads))).encode() if recorder() is None else _elsewhere(threads)

    return Machine(**json.loads(get_or_make("machine", f"{machine_identity()} {isa} {threads}", measure)))


def measure_machine(threads: int) -> Machine:
    """The peak, and the time of the smallest call."""
    from ngraph_mxnet import _core

    # Its kernels need a compiler, which running a graph does not.
    from ngraph_mxnet.targets.cpu.machine.peak import measure_peak

    peak = measure_peak(choose_isa(_core.cpu_features()), threads)
    b = Builder(name="call")
    call = get_backend("CPU").compile(b.results(b.relu(b.parameter("x", (1,)))), {"threads": threads})
    return Machine(peak.gflops, peak.gigabytes, _shortest_call(call))


def _shortest_call(executable: Executable) -> float:
    arrays = [np.zeros(1, np.float32)]
    times = []
    for _ in range(200):
        begin = time.perf_counter()
        executable.run(arrays)
        times.append(time.perf_counter() - begin)
    return min(times)


def _elsewhere(threads: int) -> bytes:
    """The measurement, in a process of its own."""
    code = ("import json, os; from dataclasses import asdict; os.environ.pop('NGRAPH_PROFILE', None);"
            "from ngraph_mxnet.targets.cpu.costs import measure_machine;"
            f"print(json.dumps(asdict(measure_machine({threads}))))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    if done.returncode:
        raise ConfigError(f"the CPU's peak could not be measured: {done.stderr.decode(errors='replace')[-500:]}")
    return done.stdout.splitlines()[-1]
