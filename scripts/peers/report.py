"""Tables of the results: one for each case, then the ratios of all models with their geometric mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from peers.spec import KINDS, OURS, parse_peer
from peers.stats import geometric_mean

NOTES = """\
ours/it: ratio of the medians over all rounds; paired: median over the rounds of the ratio in the same round. Below 1, \
NGRAPH is faster.
CPU: median CPU time of a forward pass, all threads together, waiting in a spin included.
error: largest difference from MXNet's output, relative to its largest value, over all inputs.
compile: from bind or compile to the first result in a new process, after imports and after reading the model (ONNX \
Runtime reads it in that time); warm: the same in another process that finds the disk cache filled.
peak: largest resident memory of the process, imports included; +imports: that of the imports alone."""

Result = dict[str, Any]


def ours_in(case: Result) -> Result | None:
    """The result that the ratios have on top: the first of ours."""
    return next((result for result in case["results"] if result["peer"].partition("[")[0] in OURS), None)


def _format(result: Result, key: str, form: str) -> str:
    return form.format(result[key]) if key in result else "-"


def surroundings(case: Result) -> str:
    """How calls came and beside what, in words; older results know nothing of it."""
    pause, busy = case.get("pause", 0), case.get("busy", 0)
    return (f"{case['threads']} thread(s)" + f", pauses of {pause:g} ms" * bool(pause)
            + f", beside {busy} busy" * bool(busy))


def title(case: Result) -> str:
    """The case in words."""
    cpus = ",".join(map(str, case["cpus"]))
    return f"{case['model']}, batch {case['batch']}, {surroundings(case)} on CPU {cpus}"


def case_table(case: Result) -> Table:
    """One row for each peer."""
    table = Table(title=title(case), title_justify="left")
    table.add_column("peer", no_wrap=True)
    for name in ("min ms", "median ms", "p90 ms", "p99 ms", "CPU ms", "ours/it", "paired", "error", "compile ms",
                 "warm ms", "peak MiB", "+imports"):
        table.add_column(name, justify="right", no_wrap=True)
    columns = (
        ("min_ms", "{:.3f}"), ("median_ms", "{:.3f}"), ("p90_ms", "{:.3f}"), ("p99_ms", "{:.3f}"), ("cpu_ms", "{:.3f}"),
        ("ratio", "{:.3f}"),
        ("paired_ratio", "{:.3f}"), ("relative_error", "{:.0e}"), ("compile_ms", "{:.0f}"),
        ("warm_compile_ms", "{:.0f}"), ("peak_mib", "{:.0f}"), ("imported_mib", "{:.0f}"),
    )
    for result in case["results"]:
        table.add_row(result["label"], *(_format(result, key, form) for key, form in columns))
    return table


#: What is compared across models: heading and the figure of one result.
COMPARED: dict[str, Callable[[Result], float | None]] = {
    "median latency": lambda result: result.get("median_ms"),
    "CPU time": lambda result: result.get("cpu_ms"),
    "compile to first result": lambda result: result.get("compile_ms"),
    "the same in CPU time": lambda result: result.get("compile_cpu_ms"),
    "compile to first result, disk cache filled": lambda result: result.get("warm_compile_ms"),
    "disk cache filled, CPU time": lambda result: result.get("warm_compile_cpu_ms"),
    "peak resident memory": lambda result: result.get("peak_mib"),
}


def ratios(cases: list[Result], figure: Callable[[Result], float | None]) -> dict[str, dict[str, float]]:
    """For each model, ours over each other peer's figure, by label; peers without the figure are left out."""
    table: dict[str, dict[str, float]] = {}
    for case in cases:
        ours = ours_in(case)
        mine = figure(ours) if ours else None
        if ours is None or mine is None:
            continue
        theirs = {other["label"]: figure(other) for other in case["results"] if other is not ours}
        table[case["model"]] = {label: mine / value for label, value in theirs.items() if value is not None}
    return table


def groups(cases: list[Result]) -> Iterator[tuple[str, list[Result]]]:
    """Batch size and surroundings in words, and the cases that have both."""
    named = [(f"batch {case['batch']}, {surroundings(case)}", case) for case in cases]
    for name in dict.fromkeys(name for name, _ in named):
        yield name, [case for other, case in named if other == name]


def ratio_table(heading: str, table: dict[str, dict[str, float]]) -> Table:
    """One row for each model, one column for each other peer, and the geometric means."""
    labels = list(dict.fromkeys(label for row in table.values() for label in row))
    shown = Table("model", title=heading, title_justify="left")
    for label in labels:
        shown.add_column(label, justify="right")
    for model, row in table.items():
        shown.add_row(model, *(f"{row[label]:.3f}" if label in row else "-" for label in labels))
    shown.add_section()
    means = (geometric_mean([row[label] for row in table.values() if label in row]) for label in labels)
    shown.add_row("geometric mean", *(f"{mean:.3f}" for mean in means))
    return shown


def print_report(report: dict[str, Any], console: Console, runs: str = "forward passes", notes: str = NOTES,
                 compared: dict[str, Callable[[Result], float | None]] = COMPARED) -> None:
    """Everything, as tables. `runs`: what a burst is of; `compared`: the tables of ratios."""
    machine = report["machine"]
    console.print(f"{machine['cpu']}, {machine['cpus']} CPUs, {' '.join(machine['vector_instructions'])}")
    console.print(", ".join(f"{name} {version}" for name, version in machine["packages"].items()))
    console.print(f"{report['date']}, {report['rounds']} rounds of {report['burst']} {runs}, in turns: "
                  f"{report['command']}", soft_wrap=True)
    for case in report["cases"]:
        console.print()
        console.print(case_table(case))
        for peer, reason in case["skipped"].items():
            console.print(f"{parse_peer(peer, tuple(KINDS)).label} left out: {reason}", markup=False)
    for name, cases in groups(report["cases"]):
        for heading, figure in compared.items():
            table = ratios(cases, figure)
            if any(table.values()):
                console.print()
                console.print(ratio_table(f"{heading}, ours over theirs: {name}", table))
    for failure in report["failures"]:
        console.print(f"failed: {failure['model']}: {failure['reason']}", markup=False)
    console.print()
    console.print(notes)
