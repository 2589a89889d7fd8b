"""The published figures that the simulated NNP is held against, with their sources, and the hash of its parameters."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from ngraph_mxnet.targets.nnp.device import devices, load_device
from ngraph_mxnet.targets.nnp.places import Guesses

FROZEN = "e1297765e23a2b5763220dc935e2a18b7df723a0fe5061854240651d37ac0042"
"""`parameters_hash()` of the parameters that the page was made with. A change of one is a new comparison: say why in
the change, run `scripts/nnp_validate.py --write` and set this."""

MLPERF = "mlcommons/inference_results_v0.5 f5acb8b closed/Intel/"
_RESULTS = MLPERF + "results/nnpi-1000-2x_onnx/resnet/"
_AUDIT = MLPERF + "audit/nnpi-1000_onnx/resnet/"
_MEMORY = "recalled, not read"
CHIPS, ENGINES = 2, 24
"""Of the submission: two cards of 12 engines."""


@dataclass(frozen=True)
class Row:
    """One published figure.

    `kind` is `primary` (read in the submission's own files), `secondary` (others' text), `derived` (from such rows) or
    `memory` (recalled: no test may depend on it). `follows` has the ids of rows from which the simulator's law of
    queues gives this one; a row without any is independent. The error must be at most `within`, if that is given.
    `least`: the figure is a lower bound.
    """

    id: str
    what: str
    value: float
    unit: str
    kind: str
    source: str
    follows: tuple[str, ...] = ()
    within: float | None = None
    least: bool = False


@dataclass(frozen=True)
class Load:
    """Requests of a Server run: LoadGen's `target_qps` and seed, how many, and when it sent the last one (ns).
    `latencies` in ms: the mean and percentiles that its summary states."""

    id: str
    target: float
    seed: int
    count: int
    last: int
    source: str
    latencies: dict[str, float]
    within: float | None = None


_SEED = 3622009729038561421
_NAMES = ("mean", "p50", "p90", "p95", "p97", "p99", "p99.9")


def _latencies(*found: float) -> dict[str, float]:
    return dict(zip(_NAMES, found, strict=True))


LOADS = (
    Load("server-10304", 10_300, _SEED, 618_242, 60_000_416_883,
         _RESULTS + "Server/Performance/run_1/mlperf_log_summary.txt",
         _latencies(5.741, 5.575, 7.792, 8.840, 9.610, 11.164, 14.865), 0.15),
    Load("server-10402", 10_400, _SEED, 624_151, 60_000_020_542,
         _RESULTS + "Server/Performance/run_2 to run_5/mlperf_log_summary.txt, means of four",
         _latencies(6.437, 6.094, 9.414, 10.833, 11.727, 13.772, 17.407), 0.15),
    Load("server-10384", 10_400, 0, 623_048, 60_000_205_183,
         _AUDIT + "Server/TEST01/performance/run_1/mlperf_log_summary.txt",
         _latencies(6.545, 6.027, 10.045, 11.862, 12.906, 14.820, 17.073)),
    Load("server-1024", 10_200, _SEED, 1024, 96_008_114,
         _AUDIT + "Server/TEST04-A/performance/run_1/mlperf_log_summary.txt",
         _latencies(5.441, 5.619, 6.796, 6.871, 6.926, 7.030, 7.176)),
)


def rows() -> list[Row]:
    """Every figure, those of MLPerf first."""
    found = [
        Row("offline", "Offline", 10_579.5, "images/s", "primary",
            _RESULTS + "Offline/Performance/run_1/mlperf_log_summary.txt", within=0.1),
        Row("offline-test01", "Offline again", 10_574.3, "images/s", "primary",
            _AUDIT + "Offline/TEST01/performance/run_1/mlperf_log_summary.txt", ("offline",), 0.1),
        Row("offline-reference", "Offline again", 10_567.2, "images/s", "primary",
            _AUDIT + "Offline/TEST03/verify_performance.txt", ("offline",), 0.1),
        Row("burst-unique", "1,024 images at once", 10_355.8, "images/s", "primary",
            _AUDIT + "Offline/TEST04-A/performance/run_1/mlperf_log_summary.txt", ("offline",), 0.1),
        Row("burst-same", "1,024 times one image at once", 10_341.9, "images/s", "primary",
            _AUDIT + "Offline/TEST04-B/performance/run_1/mlperf_log_summary.txt", ("offline",), 0.1),
        Row("burst-first", "the first of 1,024 images at once", 3.096, "ms", "primary",
            _AUDIT + "Offline/TEST04-A/performance/run_1/mlperf_log_summary.txt", ("offline", "server-least")),
        Row("server-least", "Server, least latency", 2.686, "ms", "primary",
            _RESULTS + "Server/Performance/run_1/mlperf_log_summary.txt", within=0.1),
    ]
    for load in LOADS:
        found += [Row(f"{load.id}-{name}", f"Server, {load.count / load.last * 1e9:,.1f} requests/s"
                      f"{' for 0.1 s' * (load.count < 2000)}: {name}", value, "ms", "primary", load.source,
                      ("offline", "server-least"), load.within if name != "p99.9" else None)
                  for name, value in load.latencies.items()]
    t4 = "Linley Newsletter 6061, and mlcommons/inference_results_v0.5 f5acb8b closed/NVIDIA/results/T4x8/resnet"
    return [
        *found,
        Row("top1", "Top-1 accuracy", 75.72, "%", "primary", _RESULTS + "Offline/accuracy/accuracy.txt"),
        Row("five-t4", "images a joule, chip of 10 W", 401.6, "images/s/W", "derived", t4),
        Row("one-t4", "chip of 50 W, above a T4", 5_622.2, "images/s", "secondary", t4, least=True),
        Row("chip-rate", "chip of 10 W", 3_600, "images/s", "memory", _MEMORY),
        Row("chip-per-watt", "images a joule, chip of 10 W", 360, "images/s/W", "memory", _MEMORY, ("five-t4",)),
        *(Row(f"nnp-t-{name}", f"NNP-T {name}: of the peak", value, "%", "memory", _MEMORY) for name, value in (
            ("gemm-1024x700x512", 31), ("gemm-2048x7133x2048", 46.7), ("gemm-4096x7133x4096", 57),
            ("conv-c64-56x56-k64-3x3-n128", 86), ("conv-c128-28x28-k128-3x3-n128", 93),
            ("conv-c128-28x28-k512-1x1-n128", 71), ("conv-c512-28x28-k128-1x1-n128", 65),
            ("conv-c256-14x14-k1024-1x1-n128", 62))),
    ]


def parameters_hash() -> str:
    """SHA-256 of the values and units of all numbers of all products in all modes, and of the guesses of lowering."""
    found = {f"{product}:{mode}": {path: (number.value, number.unit)
                                   for path, number in load_device(f"{product}:{mode}").numbers.items()}
             for product, modes in devices().items() for mode in modes}
    text = json.dumps([found, asdict(Guesses())], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
