#!/usr/bin/env python3
"""Hold the simulated NNP against what is published of the real one: ResNet-50 on two NNP-I, and products on the NNP-T.

docs/nnp-validation.md has the results. All of ours are simulated.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from mlperf.page import page
from mlperf.published import CHIPS, FROZEN, LOADS, Row, parameters_hash, rows
from mlperf.scenarios import ALONE, PERIOD, burst, compiled, loads, offline, runs, server, used_part
from mlperf.sensitivity import lowering_sensitivity, sensitivity
from mlperf.serving import ALTERNATIVES, SUBMITTED, Stream
from rich.console import Console
from rich.table import Table

from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.executable import NNPExecutable

USUAL, COOL, HOT = "nnp-i-1100:12W", "nnp-i-1100:10W", "nnp-i-1300:50W"
CLOCKS = (500e6, 525e6)
"""Hz: the steps of 25 MHz beside the clock of USUAL."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "nnp-validation.md"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sensitivity", "with_guesses", is_flag=True,
              help="Offline with other values for each guessed number of the device and of lowering (minutes).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--write", is_flag=True, help="Write docs/nnp-validation.md, with the sensitivity.")
def main(with_guesses: bool, as_json: bool, write: bool) -> None:
    """Compare the simulator with published figures. Exit status 1: an error is larger than its bound, or a parameter
    differs from those of the frozen hash."""
    found = validated(with_guesses or write)
    if write:
        PAGE.write_text(page(found), encoding="utf-8")
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        Console().print(*_tables(found))
    sys.exit(not found["holds"])


def validated(with_guesses: bool = False) -> dict[str, Any]:
    """All results, as JSON has them. Times are in ms, rates a second, errors parts of the published figure."""
    executable = compiled(USUAL)
    program = executable.program
    usual = runs(program, load_device(USUAL))
    cool, hot = (runs(compiled(name).program, load_device(name)) for name in (COOL, HOT))
    simulated = _simulated(usual, cool, hot)
    scale = offline(cool).scale(next(row.value for row in rows() if row.id == "five-t4"))
    per_watt = offline(cool).per_watt(scale)
    calibrated = {"five-t4": per_watt, "chip-per-watt": per_watt}
    told = [_told(row, simulated.get(row.id), calibrated.get(row.id)) for row in rows()]
    own = parameters_hash()
    result: dict[str, Any] = {
        "hash": {"frozen": FROZEN, "found": own, "same": own == FROZEN},
        "holds": own == FROZEN and all(row["holds"] is not False for row in told),
        "rows": told,
        "engine": {"alone_ms": usual.first * 1e3, "period_ms": usual.period * 1e3},
        "modes": [{"device": found.timeline.device.name, "images": CHIPS * rate.images, "of peak": rate.used,
                   "watts": rate.watts, "per watt": rate.per_watt()}
                  for found in (usual, cool, hot) for rate in [offline(found)]],
        "queues": [{"load": load.id, "choice": queue.choice, "sharing": queue.sharing, "slots": queue.slots,
                    **server(load, ALONE, PERIOD, queue)}
                   for load in LOADS[:2] for queue in (SUBMITTED, *ALTERNATIVES)],
        "calibrations": [{"what": "energies of operations and bytes", "factor": scale, "row": "five-t4",
                          "watts": offline(cool).images / per_watt}],
        "uncalibrated": [{"what": what, "images": CHIPS * offline(runs(program, load_device(USUAL, other))).images}
                         for what, other in _others()],
    }
    if with_guesses:
        result["sensitivity"] = _sensitivity(executable)
    return result


def _simulated(usual: Stream, cool: Stream, hot: Stream) -> dict[str, float]:
    """By id of a row; those that nothing simulates are absent."""
    rate, (at_once, first) = CHIPS * offline(usual).images, burst(usual, SUBMITTED)
    found = {"offline": rate, "offline-test01": rate, "offline-reference": rate, "burst-unique": at_once,
             "burst-same": at_once, "burst-first": first, "server-least": usual.first * 1e3,
             "five-t4": offline(cool).per_watt(), "one-t4": offline(hot).images, "chip-rate": offline(cool).images,
             "chip-per-watt": offline(cool).per_watt(), **dict(loads(usual, SUBMITTED))}
    found |= {row.id: 100 * used_part(row.id.removeprefix("nnp-t-")) for row in rows() if row.id.startswith("nnp-t-")}
    return found


def _told(row: Row, simulated: float | None, calibrated: float | None) -> dict[str, Any]:
    error = None if simulated is None else simulated / row.value - 1
    holds = None
    if error is not None and row.least:
        holds = error >= 0
    elif error is not None and row.within is not None:
        holds = abs(error) <= row.within
    source, _, path = row.source.partition(" closed/")
    return {"id": row.id, "what": row.what, "unit": row.unit, "kind": row.kind, "source": source,
            "path": path and f"closed/{path}", "published": row.value, "simulated": simulated, "error": error,
            "calibrated": calibrated, "independent": not row.follows, "follows": list(row.follows),
            "within": row.within, "least": row.least, "holds": holds}


def _others() -> list[tuple[str, dict[str, float]]]:
    """Choices that would bring Offline nearer to the published rate, and why they are not taken."""
    return [*((f"clock of {clock / 1e6:.0f} MHz", {"clock": clock}) for clock in CLOCKS),
            ("grid.startup of 0 cycles", {"grid.startup": 0.0})]


def _sensitivity(executable: NNPExecutable) -> list[dict[str, Any]]:
    device, full = load_device(USUAL), executable.program
    found = sensitivity(USUAL, lambda other: offline(runs(full, other)).images)
    found += lowering_sensitivity(executable.version, executable.settings,
                                  lambda other: offline(runs(other, device)).images)
    return [{"guess": row.variation.what, "part": row.part} for row in found]


def _tables(found: dict[str, Any]) -> list[Table]:
    table = Table("row", "kind", "published", "simulated", "error", "calibrated", "bound", title="The simulated NNP")
    for row in found["rows"]:
        bound = "" if row["holds"] is None else "holds" if row["holds"] else "FAILS"
        table.add_row(row["id"], row["kind"], f"{row['published']:,g} {row['unit']}", _number(row["simulated"]),
                      "" if row["error"] is None else f"{row['error']:+.1%}", _number(row["calibrated"]), bound)
    told = Table("", "", title="Parameters")
    told.add_row("hash", "as frozen" if found["hash"]["same"] else f"{found['hash']['found']}, FROZEN is another")
    if "sensitivity" not in found:
        return [table, told]
    guesses = Table("with another guess", "images/s, simulated, of the above")
    for row in found["sensitivity"]:
        guesses.add_row(row["guess"], f"{row['part']:.3f}")
    return [table, told, guesses]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
