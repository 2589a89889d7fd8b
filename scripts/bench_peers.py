#!/usr/bin/env python3
"""Measure the inference latency of NGRAPH beside MXNet's own backends, ONNX Runtime and OpenVINO.

docs/benchmarks.md says what is measured and how. The peers need `pip install '.[bench]'`.
Exit status: 0; 1 when a model failed or its outputs are off; 2 for a wrong command line.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import click
from peers import command, driver, spec
from peers.recording import record_cases
from peers.report import print_report

from ngraph_mxnet.tools.cli import options

WIDTH = 132


def _peers(context: click.Context, parameter: click.Parameter, value: str | None) -> list[spec.PeerSpec]:
    """Empty where none are named."""
    return [] if value is None else command.parsed(spec.parse_peers)(context, parameter, value)


def _fitting(peers: list[spec.PeerSpec], models: list[str]) -> list[spec.PeerSpec]:
    """The peers, those by default if none are named; all must be able to read all models."""
    able, usual = spec.readers(models)
    unable = [str(peer) for peer in peers if peer.kind not in able]
    if unable or not able:
        raise click.UsageError(
            f"{', '.join(unable) or 'no peer'} can't read all of {', '.join(models)}; those that can: "
            f"{', '.join(able) or 'none, so measure ONNX files and layers apart'}")
    return peers or spec.parse_peers(",".join(usual))


def _check_modules(peers: list[spec.PeerSpec]) -> None:
    missing = sorted({peer.module for peer in peers if importlib.util.find_spec(peer.module) is None})
    if missing:
        raise click.UsageError(f"{', '.join(missing)} is not installed: run `pip install '.[bench]'` in the checkout, "
                               "or leave that peer out with --peers")


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=(
    f"Peers: {', '.join(spec.INFER)}; those of {', '.join(spec.READS_ONNX)} take ONNX files. "
    f"Environment variables for one peer stand in brackets: ngraph[VAR=VALUE,...]; "
    "ratios have the first of ngraph's on top."))
@click.option("--models", default="resnet50_v2", show_default=True, callback=command.parsed(spec.parse_models),
              help="Names of the vision zoo, or zoo for all; bert12_LENGTH for BERT base; net:NAME for a small net of "
                   "a kind that people run (scripts/peers/nets.py), or nets for all; layer:NAME for MXNet layers "
                   "(scripts/peers/layers.py), or layers; FILE.onnx[3x224x224] for a file with one input of that "
                   "shape, the batch in front; commas between them.")
@click.option("--peers", callback=_peers, help="Peers with commas between them. "
              f"Default: {','.join(spec.DEFAULT_PEERS)}; of ONNX files {','.join(spec.DEFAULT_FILE_PEERS)}.")
@click.option("--batch", "batches", default="1", show_default=True, callback=command.parsed(spec.parse_numbers),
              help="Batch sizes with commas between them.")
@click.option("--threads", default="1", show_default=True, callback=command.parsed(spec.parse_numbers),
              help="Numbers of threads with commas between them.")
@click.option("--cpus", callback=command.parse_cpus, metavar="0,2,4-7",
              help="The CPUs to choose from, one for each thread, physical cores first. Default: all allowed.")
@command.surroundings
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1), help="Turns of each peer.")
@click.option("--burst", default=10, show_default=True, type=click.IntRange(1), help="Forward passes a turn.")
@click.option("--compile-runs", default=1, show_default=True, type=click.IntRange(1),
              help="New processes that compile, for each peer; the median is shown.")
@click.option("--timeout", default=600.0, show_default=True, type=click.FloatRange(1),
              help="Seconds that one step of a peer may take.")
@click.option("--work", type=click.Path(file_okay=False, path_type=Path),
              help="A folder that keeps the exported models for the next run. Default: none is kept.")
@options.record_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON to a file too.")
@click.option("--results", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Measure nothing: show the results in this JSON file.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path),
              help="Draw the ratios into a file, such as docs/img/peers.svg.")
def main(models: list[str], peers: list[spec.PeerSpec], batches: list[int], threads: list[int], cpus: list[int],
         pauses: list[int], busies: list[int], rounds: int, burst: int, compile_runs: int, timeout: float,
         work: Path | None, record: bool | None, as_json: bool, save: Path | None, results: Path | None,
         plot: Path | None) -> None:
    """Measure NGRAPH's inference latency beside its peers."""
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("matplotlib is not installed: run `pip install '.[bench]'` in the checkout")
    if results is not None:
        report = json.loads(results.read_text())
    else:
        peers = _fitting(peers, models)
        _check_modules(peers)
        plan = driver.Plan(tuple(peers), rounds, burst, compile_runs, timeout)
        cases = command.cases(models, batches, threads, cpus, pauses, busies)
        report = command.measured("bench_peers.py", cases, plan, work, save)
        record_cases("bench_peers", report, record)
    command.show(report, as_json, WIDTH, print_report)
    if plot is not None:
        from peers.plot import write_plot

        write_plot(report, plot)
    sys.exit(1 if report["failures"] else 0)


if __name__ == "__main__":
    main()
