#!/usr/bin/env python3
"""How often `runs compare` is right on this machine: about equal runs, and about one that is 5 % slower.

Two models are measured, chains of 20 and of 21 equal products, on one thread. Wanted: "can't tell" in 19 of 20 pairs of
runs of the first, and "slower" in 9 of 10 of the second with the first. It takes ten minutes of a quiet core.
Exit status: 0; 1 when the verdicts in turns are right less often; 2 for a wrong command line.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ngraph_mxnet.tools.experiments.comparison import SLOWER, UNKNOWN, compare_runs
from ngraph_mxnet.tools.experiments.store import Run, Store, add_runs, collect, measured

LAYERS = {"equal": 20, "slower": 21}
RIGHT = {"equal": UNKNOWN, "slower": SLOWER}
WANTED = {"equal": 19 / 20, "slower": 9 / 10}
ROWS, COLUMNS = 64, 256
SERIES = ("latency_ms", "cpu_ms")


def chain(layers: int, path: Path) -> None:
    """Products of one matrix after the other with equally large weights."""
    random, nodes, weights = np.random.default_rng(0), [], []
    for layer in range(layers):
        matrix = (random.standard_normal((COLUMNS, COLUMNS)) / COLUMNS**0.5).astype(np.float32)
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"]))
    ends = [helper.make_tensor_value_info(f"x{end}", TensorProto.FLOAT, [ROWS, COLUMNS]) for end in (0, layers)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def bench(model: Path, rounds: int) -> Run:
    command = ["-m", "ngraph_mxnet", "bench", str(model), "--threads", "1", "--rounds", str(rounds)]
    return Run("bench", model.name, facts=collect(command))


@click.command(help=__doc__.partition("\nExit")[0])
@click.option("--equal", default=20, show_default=True, type=click.IntRange(1), help="Pairs of equal runs.")
@click.option("--slower", default=10, show_default=True, type=click.IntRange(1), help="Pairs of which one is slower.")
@click.option("--processes", default=10, show_default=True, type=click.IntRange(3), help="Of each run.")
@click.option("--rounds", default=200, show_default=True, type=click.IntRange(1), help="Calls of each process.")
@click.option("--store", type=click.Path(dir_okay=False, path_type=Path), help="Keep the runs there.")
def main(equal: int, slower: int, processes: int, rounds: int, store: Path | None) -> None:
    counts = {"equal": equal, "slower": slower}
    verdicts: dict[tuple[str, str, str], Counter[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        benches = {}
        for kind, layers in LAYERS.items():
            chain(layers, Path(folder) / f"{kind}.onnx")
            benches[kind] = bench(Path(folder) / f"{kind}.onnx", rounds)
        place, before = Store(store or Path(folder) / "runs.sqlite"), None
        for repetition in range(max(counts.values())):
            for kind in (kind for kind, count in counts.items() if repetition < count):
                base, new = add_runs(place, measured([benches["equal"], benches[kind]], processes))
                for series in SERIES:
                    found = compare_runs(base, new, series)
                    verdicts.setdefault((kind, "in turns", series), Counter())[found.verdict] += 1
                    print(json.dumps({"pair": kind, "series": series, "ratio": found.ratio, "low": found.low,
                                      "high": found.high, "verdict": found.verdict}), flush=True)
                    if before is not None:
                        told = compare_runs(before, new, series).verdict
                        verdicts.setdefault((kind, "apart", series), Counter())[told] += 1
                before = base
    for (kind, how, series), counter in verdicts.items():
        print(json.dumps({"pairs": kind, "recorded": how, "series": series, "verdicts": counter}))
    right = {kind: verdicts[kind, "in turns", SERIES[0]][verdict] / counts[kind] for kind, verdict in RIGHT.items()}
    sys.exit(any(right[kind] < share for kind, share in WANTED.items()))


if __name__ == "__main__":
    main()
