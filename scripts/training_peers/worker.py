"""A peer's process: reads one JSON command a line, answers with one JSON object a line, as `peers.worker`.

    python -m training_peers.worker KIND THREADS CPU,CPU,... [CACHE]

KIND is one of `spec.PEERS`, with `-module` behind it for a Module in place of a Gluon block.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from peers.worker import memory_mib, serve, timed

from training_peers.spec import Training, training_of

COMPARED = 3
"""Steps whose losses are compared."""


class Adapter(Protocol):
    """What a framework does for the worker."""

    def load(self, name: str, training: Training, weights: list[np.ndarray]) -> None:
        """Build the model with these weights."""

    def native(self, data: np.ndarray, labels: np.ndarray) -> Any:
        """A batch as the framework wants it."""

    def compile(self) -> None:
        """Bind: all that comes before the first step."""

    def step(self, batch: Any) -> Any:
        """Forward, backward and update; on return all weights are written."""

    def loss_of(self, result: Any) -> float:
        """The mean loss of what `step` returned."""

    def gradients(self, batch: Any) -> list[np.ndarray]:
        """Those of the mean loss by each weight, which none of them changes."""

    def detail(self) -> str:
        """What a reader should know about how the model was taken; raises RuntimeError if it was not."""


def make_adapter(kind: str, threads: int) -> Adapter:
    """The adapter of a peer's kind; the import happens here."""
    if kind in ("torch", "torch-bf16"):
        from training_peers.torch_peer import Torch

        return Torch(threads, bf16=kind == "torch-bf16")
    if kind == "tensorflow":
        from training_peers.tensorflow_peer import TensorFlow

        return TensorFlow(threads)
    from training_peers.mxnet_peer import Gluon, Module

    kind, _, interface = kind.partition("-")
    return Module(kind) if interface == "module" else Gluon(kind)


def first_results(adapter: Adapter, losses: list[float], batches: list[Any]) -> np.ndarray:
    """Behind the first step: the losses of the first steps, then each gradient's norm after the first of them."""
    gradients = adapter.gradients(batches[1])
    norms = [float(np.linalg.norm(gradient.astype(np.float64))) for gradient in gradients]
    del gradients
    return np.array(losses + [adapter.loss_of(adapter.step(batch)) for batch in batches[1:COMPARED]] + norms)


class Worker:
    """The commands; each returns the answer."""

    def __init__(self, kind: str, threads: int, cache: str | None) -> None:
        start = time.perf_counter()
        self.adapter = make_adapter(kind, threads)
        self.import_ms = (time.perf_counter() - start) * 1e3

    def compile(self, prefix: str, batch: int) -> dict[str, Any]:
        """Build the model, then bind it and run a step; `compile_ms` is from bind to the end of the step."""
        imported = memory_mib("VmRSS")
        name = Path(prefix).name
        with np.load(f"{prefix}-weights.npz") as file:
            weights = [file[key] for key in file.files]
        with np.load(f"{prefix}-batches.npz") as file:
            batches = list(zip(file["data"], file["labels"], strict=True))
        self.nudged = np.load(f"{prefix}-nudged.npy")
        start = time.perf_counter()
        self.adapter.load(name, training_of(name), weights)
        self.batches = [self.adapter.native(*pair) for pair in batches]
        loaded, cpu_loaded = time.perf_counter(), time.process_time()
        self.adapter.compile()
        result = self.adapter.step(self.batches[0])
        done, cpu_done = time.perf_counter(), time.process_time()
        self.losses = [self.adapter.loss_of(result)]
        return {
            "load_ms": (loaded - start) * 1e3,
            "compile_ms": (done - loaded) * 1e3,
            "compile_cpu_ms": (cpu_done - cpu_loaded) * 1e3,
            "import_ms": self.import_ms,
            "imported_mib": imported,
            "detail": "",
        }

    def outputs(self, path: str) -> dict[str, Any]:
        """Write the first results, then MXNet's of nudged weights."""
        np.save(path, np.concatenate([first_results(self.adapter, self.losses, self.batches), self.nudged]))
        return {"count": COMPARED, "detail": self.adapter.detail()}

    def burst(self, count: int, first: int, pause: float) -> dict[str, Any]:
        """Time steps; see `timed`."""
        return timed(self.adapter.step, self.batches, count, first, pause)

    def peak(self) -> dict[str, Any]:
        """The largest resident memory so far."""
        return {"peak_mib": memory_mib("VmHWM")}


if __name__ == "__main__":
    serve(Worker)
