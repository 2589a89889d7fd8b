#!/usr/bin/env python3
"""Say what data-parallel training would give on a cluster, by traces of real steps.

    python scripts/simulate_cluster.py scripts/traces/resnet50_v2.json --nodes 1,2,4,8,16,32 --gbit 10,25,100

`record_step_trace.py` records traces, `calibrate_network.py` measures links. docs/distributed.md says what is modelled.
Exit status: 0; 1 for what can't be read or simulated; 2 for a wrong command line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from clusters.measured import Comparison, Measured, compare
from clusters.smpi_replay import NETWORK_MODELS, replay, without_cpus
from clusters.study import Study, study
from clusters.study import plot as draw
from rich.console import Console
from rich.table import Table

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.distributed.simulation import ALGORITHMS, Calibration, Cluster, Link, Scheme, Trace, predict

FILE = click.Path(dir_okay=False, path_type=Path)
GBIT = 25.0
"""Of the network with which measured steps are compared that don't say theirs."""
Replayed = list[dict[str, Any]]


def numbers(kind: Callable[[str], float]) -> Callable[..., tuple[float, ...]]:
    """A callback for numbers above 0 with commas between them."""
    def parse(context: click.Context, parameter: click.Parameter, text: str) -> tuple[float, ...]:
        try:
            found = tuple(kind(each) for each in text.split(","))
        except ValueError:
            found = ()
        if not found or min(found) <= 0:
            raise click.BadParameter(f"found {text!r}, expected numbers above 0 with commas between them")
        return found
    return parse


def replayed(studies: Sequence[Study]) -> Replayed:
    """Each point of the curves beside SimGrid's, both without what CPUs take.

    Raises:
        SimulationError: SimGrid is not installed, or can't replay this.
    """
    found: Replayed = []
    for each in studies:
        plain = without_cpus(each.cluster)
        for gbit in each.curves:
            for nodes in each.nodes:
                cluster = replace(plain, nodes=nodes,
                                  network=Link.of_gbit(gbit, each.cluster.network.latency_seconds))
                step = predict(each.trace, cluster, each.scheme).step_seconds
                judged = {name: replay(each.trace, cluster, each.scheme, name) for name in NETWORK_MODELS}
                found.append({"model": each.trace.model, "gbit": gbit, "nodes": nodes, "step_seconds": step, **judged})
    return found


def print_replayed(points: Replayed, console: Console) -> None:
    table = Table("model", "Gb/s", "nodes", "step, s", *(f"SimGrid, {name}" for name in NETWORK_MODELS),
                  title="Beside SimGrid, without the CPUs' part", title_justify="left")
    for point in points:
        step = point["step_seconds"]
        table.add_row(point["model"], f"{point['gbit']:g}", str(point["nodes"]), f"{step:.4f}",
                      *(f"{point[name]:.4f} ({step / point[name] - 1:+.2%})" for name in NETWORK_MODELS))
    console.print(table)


def print_comparisons(comparisons: Sequence[Comparison], console: Console) -> None:
    table = Table("model", "batch", "nodes", "ranks a node", "measured, s", "predicted, s", "error",
                  title="Beside measured steps", title_justify="left")
    for each in comparisons:
        step = each.measured
        table.add_row(step.model, str(step.batch), str(step.nodes), str(step.ranks_per_node),
                      f"{step.step_seconds:.4f}", f"{each.prediction.step_seconds:.4f}", f"{each.error:+.1%}")
    console.print(table)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("traces", nargs=-1, required=True, type=FILE)
@click.option("--nodes", default="1,2,4,8,16,32", show_default=True, callback=numbers(int),
              help="The points of curves.")
@click.option("--gbit", "gbits", default="10,25,100", show_default=True, callback=numbers(float),
              help="Networks' bandwidths in Gb/s; each is a curve.")
@click.option("--latency-us", default=10.0, show_default=True, type=click.FloatRange(0), help="Networks' latency.")
@click.option("--ranks-per-node", default=1, show_default=True, type=click.IntRange(1))
@click.option("--compute-speed", default=1.0, show_default=True, type=click.FloatRange(0, min_open=True),
              help="How many times as fast as in the trace a rank computes.")
@click.option("--calibration", type=FILE,
              help="What calibrate_network.py measured. Default: communication costs CPUs nothing.")
@click.option("--algorithm", default="ring", show_default=True, type=click.Choice(list(ALGORITHMS)))
@click.option("--no-shared-memory", is_flag=True, help="The ranks of a node send messages to each other, too.")
@click.option("--bf16", is_flag=True, help="Gradients go over the wire in bf16.")
@click.option("--bucket-mb", type=click.FloatRange(0), help="A bucket of so many MB is full, as NGRAPH_KVSTORE_BUCKET; "
              "0: each gradient is one. Default: as of the kvstore.")
@click.option("--no-overlap", is_flag=True, help="Sum behind the backward pass, not beside it.")
@click.option("--late-update", is_flag=True, help="Update weights when all sums are there, not bucket by bucket.")
@click.option("--poll-ms", default=0.0, show_default=True, type=click.FloatRange(0),
              help="Between two looks of the progress thread at messages, while the rank computes.")
@click.option("--jitter", default=0.0, show_default=True, type=click.FloatRange(0),
              help="Standard deviation of the logarithm of a rank's computing time.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the jitter.")
@click.option("--measured", type=FILE, help="Measured steps (JSON) to compare predictions with.")
@click.option("--simgrid", is_flag=True, help="Replay each point by SimGrid's smpirun, too.")
@click.option("--plot", type=FILE, help="Draw the curves there, with matplotlib.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def main(traces: tuple[Path, ...], nodes: tuple[int, ...], gbits: tuple[float, ...], latency_us: float,
         calibration: Path | None, measured: Path | None, simgrid: bool, plot: Path | None, as_json: bool,
         **options: Any) -> None:
    """Say what training would give on a cluster, by the TRACES of real steps."""
    try:
        loaded = [Trace.load(path) for path in traces]
        calibrated = Calibration.load(calibration) if calibration else None
        base = Cluster(1, Link.of_gbit(GBIT, latency_us * 1e-6), options["ranks_per_node"],
                       compute_speed=options["compute_speed"], poll_seconds=options["poll_ms"] * 1e-3,
                       jitter=options["jitter"], seed=options["seed"])
        full = None if options["bucket_mb"] is None else int(options["bucket_mb"] * 2**20)
        scheme = Scheme(options["algorithm"], not options["no_shared_memory"], options["bf16"],
                        full, not options["no_overlap"], not options["late_update"])

        def cluster_of(trace: Trace) -> Cluster:
            return calibrated.of(base, trace.threads) if calibrated else base

        studies = [study(trace, cluster_of(trace), scheme, nodes, gbits) for trace in loaded]
        comparisons = compare(loaded, cluster_of, scheme, Measured.load(measured)) if measured else []
        points = replayed(studies) if simgrid else []
        if plot is not None:
            draw(studies, plot)
    except (NGraphError, OSError) as error:
        sys.exit(f"error: {error}")
    if as_json:
        click.echo(json.dumps({
            "studies": [each.to_dict() for each in studies], "simgrid": points,
            "measured": [{**asdict(each.measured), "predicted_seconds": each.prediction.step_seconds,
                          "error": each.error} for each in comparisons]}, indent=1))
        return
    console = Console(width=Study.width)
    for each in studies:
        console.print(each)
    if points:
        print_replayed(points, console)
    if comparisons:
        print_comparisons(comparisons, console)


if __name__ == "__main__":
    main()
