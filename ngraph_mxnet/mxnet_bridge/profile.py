"""Where the time of a model's forward pass goes, kernel by kernel, as the executor runs it: branches at once and all.

A kernel's time is that of all threads together, divided by their number: so the kernels and the time outside of them
add up to the whole, and a kernel's rate compares with the peak of all threads.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet import _core, config
from ngraph_mxnet.cpu.isa import choose_isa
from ngraph_mxnet.cpu.memory import MemoryUse
from ngraph_mxnet.cpu.peak import Peak, measure_peak
from ngraph_mxnet.cpu.trace import Label, Spans
from ngraph_mxnet.errors import ModelError
from ngraph_mxnet.mxnet_bridge.explain import explain, load_symbol

if TYPE_CHECKING:
    from mxnet.executor import Executor
    from mxnet.ndarray import NDArray

_WARM_UP = 3
_EVENTS_PER_THREAD = 1 << 17
_SEED = 7


@dataclass(frozen=True)
class Row:
    """A kernel at one node: per forward pass. `calls` are instructions of the Program."""

    kernel: str
    origin: str
    calls: int
    ms: float
    gflop: float
    megabytes: float

    @property
    def gflops(self) -> float:
        """GFLOP a second."""
        return self.gflop / self.ms * 1e3 if self.ms else 0.0

    @property
    def gigabytes(self) -> float:
        """A second."""
        return self.megabytes / self.ms if self.ms else 0.0


@dataclass(frozen=True)
class Profile:
    """Medians over the forward passes. `waiting_ms` is the threads' time inside calls but in no kernel: barriers,
    phases with too few tasks for all, a core taken by another process. `outside_ms` is what is left: MXNet and what
    it runs itself. `memory`: of each region."""

    threads: int
    isa: str
    rounds: int
    peak: Peak
    rows: list[Row]
    wall_ms: float
    waiting_ms: float
    outside_ms: float
    dropped: int = 0
    memory: tuple[MemoryUse, ...] = ()

    @property
    def total_ms(self) -> float:
        """The sum of the parts, which shares refer to; medians of parts differ a little from the whole's."""
        return sum(row.ms for row in self.rows) + self.waiting_ms + self.outside_ms

    def kinds(self) -> list[Row]:
        """One row a kernel, over all nodes."""
        groups: dict[str, list[Row]] = defaultdict(list)
        for row in self.rows:
            groups[row.kernel].append(row)
        return _slowest_first(_total(kernel, "", rows) for kernel, rows in groups.items())

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        def row(r: Row) -> dict[str, Any]:
            return {**asdict(r), "share": r.ms / self.total_ms,
                    "gflops": r.gflops, "of_peak": r.gflops / self.peak.gflops,
                    "gigabytes": r.gigabytes, "of_copy": r.gigabytes / self.peak.gigabytes}

        return {**asdict(self), "rows": [row(r) for r in self.rows], "kinds": [row(r) for r in self.kinds()]}

    def __rich__(self) -> Any:
        from ngraph_mxnet.mxnet_bridge.profile_table import render

        return render(self)


def _total(kernel: str, origin: str, rows: Sequence[Row]) -> Row:
    return Row(kernel, origin, sum(r.calls for r in rows), sum(r.ms for r in rows), sum(r.gflop for r in rows),
               sum(r.megabytes for r in rows))


def _slowest_first(rows: Any) -> list[Row]:
    return sorted(rows, key=lambda row: -row.ms)


def profile_model(model: str | Path, shapes: Mapping[str, Sequence[int]], params: str | Path | None = None, *,
                  rounds: int = 20) -> Profile:
    """Bind the model for the backend NGRAPH, with the weights in `params` or random ones, and run it `rounds` times.

    MXNET_SUBGRAPH_BACKEND must name NGRAPH.

    Raises:
        ModelError: the files are corrupt, don't fit, or MXNet can't infer the model's shapes.
    """
    executor = _bind(Path(model), shapes, None if params is None else Path(params))

    def forward() -> None:
        for output in executor.forward(is_train=False):
            output.wait_to_read()

    isa, threads = choose_isa(_core.cpu_features()), config.threads()
    peak = measure_peak(isa, threads)
    measured = measure(forward, threads, rounds)
    memory = explain(model, shapes, backend="CPU", kernels=True).memory  # the bind may have compiled nothing
    return replace(measured, isa=isa, peak=peak, memory=tuple(memory or ()))


def _bind(model: Path, shapes: Mapping[str, Sequence[int]], params: Path | None) -> Executor:
    import mxnet as mx

    symbol = load_symbol(model)
    try:
        executor = symbol.simple_bind(ctx=mx.cpu(), grad_req="null", **{k: tuple(v) for k, v in shapes.items()})
    except (mx.base.MXNetError, RuntimeError, ValueError) as error:
        raise ModelError(f"MXNet can't bind {model} with {dict(shapes)}: {error}") from None
    arrays = {**executor.arg_dict, **executor.aux_dict}
    rng = np.random.default_rng(_SEED)
    for name, array in arrays.items():
        array[:] = _random(rng, name, array.shape)
    if params is not None:
        _load_params(params, {name: array for name, array in arrays.items() if name not in shapes})
    return executor


def _random(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Of a scale that keeps activations near one: a value that overflows or dies out may take other time."""
    if name.endswith(("gamma", "var")):
        return rng.uniform(0.8, 1.2, shape)
    if name.endswith(("beta", "mean", "bias")):
        return rng.uniform(-0.2, 0.2, shape)
    return rng.standard_normal(shape) * (sqrt(2 / prod(shape[1:])) if name.endswith("weight") else 1.0)


def _load_params(path: Path, wanted: Mapping[str, NDArray]) -> None:
    import mxnet as mx

    try:
        found = {name.split(":")[-1]: array for name, array in mx.nd.load(str(path)).items()}
    except (mx.base.MXNetError, AttributeError) as error:
        raise ModelError(f"can't read parameters by name from {path}: {error}") from None
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise ModelError(f"{path} has no {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}")
    for name, array in wanted.items():
        if found[name].shape != array.shape:
            raise ModelError(f"{path}: {name} is {found[name].shape}, the model expects {array.shape}")
        found[name].copyto(array)


def measure(forward: Callable[[], None], threads: int, rounds: int) -> Profile:
    """Run `forward` and sort its time; peak and instruction set are left to the caller."""
    for _ in range(_WARM_UP):
        forward()
    _core.trace_start(_EVENTS_PER_THREAD)
    limits = []
    try:
        for _ in range(rounds):
            begin = time.perf_counter_ns()
            forward()
            limits.append((begin, time.perf_counter_ns()))
    finally:
        _core.trace_stop()
        spans = Spans.take()
    return _sorted(spans, limits, threads)


def _sorted(spans: Spans, limits: Sequence[tuple[int, int]], threads: int) -> Profile:
    """Medians over the rounds, which last from one limit to the other, in nanoseconds."""
    events = spans.events
    busy = np.zeros((len(limits), len(spans.labels)))
    for number, (begin, end) in enumerate(limits):
        inside = events[(events["begin"] >= begin) & (events["end"] <= end)]
        np.add.at(busy[number], inside["label"], (inside["end"] - inside["begin"]) / 1e6)
    kernels = [i for i, label in enumerate(spans.labels) if label.category == "kernel"]
    calls = [i for i, label in enumerate(spans.labels) if label.category == "call"]
    in_kernels, in_calls = busy[:, kernels].sum(1) / threads, busy[:, calls].sum(1)
    wall = np.array([(end - begin) / 1e6 for begin, end in limits])
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for i in kernels:
        if busy[:, i].any():
            row = _row(spans.labels[i], float(np.median(busy[:, i])) / threads)
            groups[row.kernel, row.origin].append(row)
    rows = _slowest_first(_total(*key, parts) for key, parts in groups.items())
    return Profile(threads, "", len(limits), Peak(threads, 0, 0), rows, float(np.median(wall)),
                   float(np.median(in_calls - in_kernels)), float(np.median(wall - in_calls)), spans.dropped)


def _row(label: Label, ms: float) -> Row:
    return Row(label.kernel, label.origin, 1, ms, label.operations / 1e9, label.bytes / 1e6)
