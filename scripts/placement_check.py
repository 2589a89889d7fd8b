#!/usr/bin/env python3
"""Compare what HYBRID predicts of a call with what simulates, and with everything on one device.

The CPU's part is measured (cpu_costs=measured), the NNP's simulated. Everything on one device is compiled by itself, by
a pin.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import click
from placement.models import MODELS, Model
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import compile

DEVICES = ("nnp-i-1100", "nnp-t-1400")
MEDIAN_ERROR, MOST_ERROR, MOST_OF_BETTER = 0.10, 0.25, 1.02
OPTIONS = {"cpu_costs": "measured"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--model", "models", multiple=True, type=click.Choice(tuple(MODELS)), help="May be given more than once "
              "(default: all).")
@click.option("--device", "devices", multiple=True, default=DEVICES, show_default=True,
              help="Product of the NNP; may be given more than once.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(models: tuple[str, ...], devices: tuple[str, ...], as_json: bool) -> None:
    """Place models on the CPU and the NNP. Ends with status 1 where a prediction or a placement is off."""
    with tempfile.TemporaryDirectory() as folder:
        if os.environ.get("NGRAPH_CACHE_DIR", "off") == "off":
            os.environ["NGRAPH_CACHE_DIR"] = folder  # what is measured twice is not alike
        pairs = [(name, device) for name in models or MODELS for device in devices]
        rows = [row(name, MODELS[name], device)
                for name, device in track(pairs, "models", console=Console(stderr=True))]
    summary = summary_of(rows)
    if as_json:
        print(json.dumps({"rows": rows, **summary}, indent=2))
    else:
        Console().print(_table(rows), *(f"{name}: {value}" for name, value in summary.items()), sep="\n")
    sys.exit(not summary["holds"])


def row(name: str, model: Model, device: str) -> dict[str, Any]:
    """One model on the CPU and a product of the NNP; times in seconds of a call.

    `error`: of the prediction against the simulation. `of_better`: the simulated time over that of everything on the
    better device. `node_error`: of everything on the NNP as predicted by nodes alone, before anything was compiled.
    """
    backend, nnp = f"HYBRID:{device}", f"NNP:{device}"
    plan = compile(model(), backend, **OPTIONS).plan
    alone: dict[str, float | None] = {}
    for where in ("CPU", nnp):
        try:
            alone[where] = compile(model(), backend, **OPTIONS, pins={"*": where}).plan.simulated_seconds
        except UnsupportedError:
            alone[where] = None
    by_nodes = get_backend(backend).plan(model(), OPTIONS).alone[1]
    better = min(seconds for seconds in alone.values() if seconds is not None)
    on_nnp = alone[nnp]
    return {"model": name, "device": device, "predicted_seconds": plan.seconds,
            "simulated_seconds": plan.simulated_seconds, "error": plan.seconds / plan.simulated_seconds - 1,
            "cpu_seconds": alone["CPU"], "nnp_seconds": on_nnp, "of_better": plan.simulated_seconds / better,
            "node_error": by_nodes / on_nnp - 1 if on_nnp is not None and isfinite(by_nodes) else None,
            "regions": [region.device for region in plan.regions]}


def summary_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The errors' median and worst, and whether all is within the bounds."""
    errors, by_nodes = ([abs(found[name]) for found in rows if found[name] is not None] for name in
                        ("error", "node_error"))
    found = {"median_error": statistics.median(errors), "worst_error": max(errors),
             "worst_of_better": max(found["of_better"] for found in rows),
             "median_node_error": statistics.median(by_nodes) if by_nodes else None}
    holds = (found["median_error"] <= MEDIAN_ERROR and found["worst_error"] <= MOST_ERROR
             and found["worst_of_better"] <= MOST_OF_BETTER)
    return {**found, "holds": holds}


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("model", "device", title="A call")
    for name in ("predicted us", "simulated us", "error", "CPU us", "NNP us", "of better", "by nodes", "regions"):
        table.add_column(name, justify="right")

    def micro(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds * 1e6:.1f}"

    def percent(ratio: float | None) -> str:
        return "-" if ratio is None else f"{ratio:+.1%}"

    for found in rows:
        table.add_row(found["model"], found["device"], micro(found["predicted_seconds"]),
                      micro(found["simulated_seconds"]), percent(found["error"]), micro(found["cpu_seconds"]),
                      micro(found["nnp_seconds"]), f"{found['of_better']:.3f}", percent(found["node_error"]),
                      str(len(found["regions"])))
    return table


if __name__ == "__main__":
    main()
