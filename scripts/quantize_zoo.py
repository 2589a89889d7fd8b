#!/usr/bin/env python3
"""Run `quantize` on every model of the vision zoo: is any slower than its float32, and what does 8 bits cost it?

A model is a process: random weights, 8 random images, `ngraph_mxnet.quantize` without a bound on accuracy. Then both
models run by turns once more, on other images, as what `quantize` measured has chosen the layers; that ratio counts.
Exit status: 0; 1 when a model failed or is slower than LIMIT; 2 for a wrong command line.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from peers.spec import ZOO
from rich.console import Console
from rich.progress import track
from rich.table import Table
from workers import absolute_path

LIMIT = 1.02
"""Of two measurements of the same program by turns; docs/quantisation.md."""
IMAGES = 8


def quantized(name: str) -> dict[str, Any]:
    """What became of a model."""
    import ngraph_mxnet  # isort: skip  # mxnet 1.9.1 then imports on current NumPy
    import mxnet as mx

    from ngraph_mxnet.base import config
    from ngraph_mxnet.quantisation.session.samples import Stopwatch

    mx.random.seed(0)
    np.random.seed(0)
    net = mx.gluon.model_zoo.vision.get_model(name)
    net.initialize(mx.init.Xavier())
    size = 299 if name.startswith("inception") else 224
    images = np.random.default_rng(0).standard_normal((IMAGES + 1, 3, size, size), np.float32)
    net(mx.nd.array(images[:1]))
    found = ngraph_mxnet.quantize(net, images[:IMAGES], progress=False)
    in_float = found.compile(precision="f32", recipe=None)
    given = {"data": images[IMAGES:]}
    (wanted,), (result,) = in_float(given), found(given)
    before, after = Stopwatch(config.threads()).seconds_of([in_float, found.compile()], given)
    return {"layers": len(found.report.layers), "int8": len(found.recipe.products), "float_ms": before * 1e3,
            "int8_ms": after * 1e3, "error": float(np.linalg.norm(result - wanted) / np.linalg.norm(wanted)),
            "decision": found.report.decision}


def worked(name: str, threads: int) -> dict[str, Any]:
    """Of a process of its own."""
    environment = {**os.environ, **absolute_path(), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, __file__, "--worker", name], env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"model": name, "failed": (done.stderr.strip() or "no message").splitlines()[-1]}
    return {"model": name, **json.loads(done.stdout.splitlines()[-1])}


def tabulated(rows: list[dict[str, Any]]) -> Table:
    table = Table("model", "layers in 8 bits", "float ms", "quantised ms", "ratio", "error of outputs")
    for row in rows:
        if "failed" in row:
            table.add_row(row["model"], row["failed"])
        else:
            table.add_row(row["model"], f"{row['int8']} of {row['layers']}", f"{row['float_ms']:.2f}",
                          f"{row['int8_ms']:.2f}", f"{row['int8_ms'] / row['float_ms']:.2f}", f"{row['error']:.3f}")
    return table


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--models", default="all", help="Of the zoo, with commas between them, or all.")
@click.option("--threads", default=2, type=click.IntRange(1), help="OMP_NUM_THREADS.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write JSON to a file too.")
def main(models: str, threads: int, save: Path | None) -> None:
    names = list(ZOO) if models == "all" else models.split(",")
    unknown = [name for name in names if name not in ZOO]
    if unknown:
        raise click.BadParameter(f"found {', '.join(unknown)}, expected of {', '.join(ZOO)}", param_hint="--models")
    rows = []
    for name in track(names, "quantising", console=Console(stderr=True)):
        rows.append(worked(name, threads))
        if save is not None:
            save.write_text(json.dumps(rows, indent=1))
    console = Console()
    if not console.is_terminal:
        console.width = 110
    console.print(tabulated(rows))
    ratios = {row["model"]: row["int8_ms"] / row["float_ms"] for row in rows if "failed" not in row}
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        console.print(f"geometric mean {mean:.2f}, largest {max(ratios.values()):.2f}")
    sys.exit(1 if len(ratios) < len(rows) or max(ratios.values()) > LIMIT else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(quantized(sys.argv[2])))
    else:
        main()
