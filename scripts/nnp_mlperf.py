#!/usr/bin/env python3
"""Simulate MLPerf Inference v0.5's ResNet-50 on two NNP-I, and see how much each guessed number of the device matters.

docs/nnp-mlperf.md quotes the figures. All of them are simulated; nothing is fitted to what was published.
"""

from __future__ import annotations

import json
from typing import Any

import click
from mlperf.scenarios import compiled, offline, runs, server
from mlperf.sensitivity import lowering_sensitivity, sensitivity
from mlperf.serving import Batch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ngraph_mxnet.targets.nnp.device import load_device

PUBLISHED_OFFLINE = 10_579.5
PUBLISHED_SERVER = "10,303 to 10,402 requests a second; mean 5.7 to 6.5 ms, least 2.7 ms"
PUBLISHED_CHIP = "3,600 images/s at 10 W, 360 images/s/W"
CHIPS = 2


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--device", "devices", multiple=True, default=("nnp-i-1100:12W",), show_default=True,
              help="Product and power mode; may be given more than once.")
@click.option("--instances", default=12, show_default=True, help="Parts of the chip that run batches of their own.")
@click.option("--batch", default=1, show_default=True, help="Largest batch of an instance.")
@click.option("--precision", default="int8", show_default=True)
@click.option("--sensitivity", "with_guesses", is_flag=True,
              help="Offline with other values for each guessed number of the device and of lowering.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(devices: tuple[str, ...], instances: int, batch: int, precision: str, with_guesses: bool,
         as_json: bool) -> None:
    """Simulate the Offline and Server scenarios."""
    results = [_results(name, instances, batch, precision, with_guesses) for name in devices]
    if as_json:
        print(json.dumps(results, indent=2))
        return
    console = Console()
    for result in results:
        console.print(*_tables(result))


def _results(name: str, instances: int, batch: int, precision: str, with_guesses: bool) -> dict[str, Any]:
    device = load_device(name)
    progress = Console(stderr=True)
    executables = [compiled(name, precision, instances, size)
                   for size in track(range(1, batch + 1), f"{name}: batches", console=progress)]
    programs = [executable.program for executable in executables]
    full, images = programs[-1], instances * batch
    streams = [runs(program, device) for program in programs]
    found = offline(streams[-1], images, CHIPS)
    batches = [Batch(one.first, one.period) for one in streams]
    served = server(batches, instances, CHIPS)
    result: dict[str, Any] = {
        "device": device.name, "chips": CHIPS, "instances": instances, "batch": batch, "precision": precision,
        "instructions": len(full.instructions),
        "offline": {**vars(found), "of published": found.images / PUBLISHED_OFFLINE},
        "batches": [vars(one) for one in batches], "server": vars(served),
    }
    if with_guesses:
        with progress.status(f"{name}: other guesses"):
            rows = sensitivity(name, lambda other: offline(runs(full, other), images, CHIPS).images)
            rows += lowering_sensitivity(executables[-1].version, executables[-1].settings,
                                         lambda other: offline(runs(other, device), images, CHIPS).images)
        result["sensitivity"] = [{"guess": row.variation.what, "part": row.part} for row in rows]
    return result


def _tables(result: dict[str, Any]) -> list[Table]:
    offline, server = result["offline"], result["server"]
    table = Table("simulated", "found", "published", title=f"ResNet-50 {result['precision']} on {result['chips']} x "
                  f"{result['device']}, {result['batch']} x {result['instances']}")
    table.add_row("Offline, images/s", f"{offline['images']:,.0f} ({offline['used']:.0%} of peak)",
                  f"{PUBLISHED_OFFLINE:,} ({offline['of published']:.3f} of it found)")
    table.add_row("Server, requests/s", f"{server['rate']:,.0f}; mean {server['mean'] * 1e3:.2f} ms, "
                  f"least {server['least'] * 1e3:.2f} ms, 99 % within {server['percentile99'] * 1e3:.2f} ms",
                  PUBLISHED_SERVER)
    table.add_row("a chip", f"{offline['images'] / result['chips']:,.0f} images/s; {offline['watts']:.2f} W, "
                  f"{offline['per_watt']:,.0f} images/s/W", PUBLISHED_CHIP)
    for size, one in enumerate(result["batches"], 1):
        table.add_row(f"batch of {size} an instance", f"{one['seconds'] * 1e3:.2f} ms, every "
                      f"{one['period'] * 1e3:.2f} ms", "")
    if "sensitivity" not in result:
        return [table]
    guesses = Table("with another guess", "images/s, simulated, of the above")
    for row in result["sensitivity"]:
        guesses.add_row(row["guess"], f"{row['part']:.3f}")
    return [table, guesses]


if __name__ == "__main__":
    main()
