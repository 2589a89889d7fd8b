#!/usr/bin/env python3
"""Measure models in 8 bits: ours beside our float32, OpenVINO's (quantised by NNCF) and ONNX Runtime's (QDQ).

All are calibrated on the same four samples, and outputs are compared with MXNet's own in float32: of random weights, so
that the error of 8 bits is larger than a trained model's, and only says that nothing is broken. NNCF is in an
environment of its own, as it needs other versions.
Exit status: 0; 1 when a model failed or its outputs are off; 2 for a wrong command line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
from peers import command, driver, spec
from peers.process import PeerError
from peers.recording import record_cases
from peers.report import print_report
from workers import SCRIPTS, absolute_path

from ngraph_mxnet.tools.cli import options

WIDTH = 132
DEFAULT = "none,openvino,openvino-int8,onnxruntime-int8,ngraph-int8,ngraph"
MADE_BY = {"openvino-int8": ("openvino", "-int8.xml"), "onnxruntime-int8": ("onnxruntime", "-int8.onnx"),
           "ngraph-int8": ("ngraph", None), "onnxruntime-ours-int8": ("to-onnx", None)}
"""What `peers.quantize` is told, and the end of the file that is not made again; our files depend on our code."""


def export(model: str, batch: int, folder: Path, kinds: tuple[str, ...], nncf: str) -> str:
    """The model's files, and what each of these kinds of peers runs in 8 bits.

    Raises:
        PeerError: one can't be made.
    """
    prefix = driver.export(model, batch, folder)
    for kind in kinds:
        maker, ending = MADE_BY[kind]
        if ending is not None and Path(f"{prefix}-b{batch}{ending}").exists():
            continue
        python = nncf if kind == "openvino-int8" else sys.executable
        quantizing = [python, "-m", "peers.quantize", maker, prefix, str(batch)]
        environment = {**os.environ, **absolute_path(), "MXNET_SUBGRAPH_BACKEND": "NONE"}
        done = subprocess.run(quantizing, cwd=SCRIPTS, env=environment, capture_output=True, text=True)
        if done.returncode:
            why = (done.stderr.strip() or "no message").splitlines()[-1]
            raise PeerError(f"{model} can't be quantised for {kind}: {why}")
    return prefix


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=(
    f"Peers: {', '.join(spec.INT8)}; environment variables for one stand in brackets. Ratios have the first of "
    "ngraph's on top."))
@click.option("--models", default="resnet50_v2,mobilenetv2_1.0", show_default=True,
              callback=command.parsed(spec.parse_models), help="Models of the zoo, with commas between them.")
@click.option("--peers", default=DEFAULT, show_default=True, help="With commas between them.",
              callback=command.parsed(partial(spec.parse_peers, kinds=spec.INT8)))
@click.option("--nncf", default=sys.executable, metavar="PATH", help="The Python that has NNCF. Default: this one.")
@click.option("--threads", default="2", show_default=True, callback=command.parsed(spec.parse_numbers))
@click.option("--batches", default="1", show_default=True, callback=command.parsed(spec.parse_numbers))
@click.option("--rounds", default=8, show_default=True, type=click.IntRange(1), help="Turns of each peer.")
@click.option("--burst", default=3, show_default=True, type=click.IntRange(1), help="Forward passes a turn.")
@click.option("--work", type=click.Path(file_okay=False, path_type=Path),
              help="A folder that keeps the models for the next run, also those in 8 bits but ours.")
@options.record_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON to a file too.")
def main(models: list[str], peers: list[spec.PeerSpec], nncf: str, threads: list[int], batches: list[int], rounds: int,
         burst: int, work: Path | None, record: bool | None, as_json: bool, save: Path | None) -> None:
    """Measure models in 8 bits beside their peers."""
    cases = command.cases(models, batches, threads, sorted(os.sched_getaffinity(0)))
    quantized = tuple(peer.kind for peer in peers if peer.kind in MADE_BY)
    plan = driver.Plan(tuple(peers), rounds, burst, 1, 900.0, export=partial(export, kinds=quantized, nncf=nncf))
    report = command.measured("bench_int8.py", cases, plan, work, save)
    record_cases("bench_int8", report, record)
    command.show(report, as_json, WIDTH, print_report)
    sys.exit(1 if report["failures"] else 0)


if __name__ == "__main__":
    main()
