"""docs/models.md: a table by genre, and why nodes are left."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from matrix import as_onnx
from matrix.as_file import REFUSED, SAME_BITS, SAME_MEANS
from matrix.compare import SAME, TOLERANCE

Result = dict[str, Any]
_TITLE = "# Models of others"


def is_whole(result: Result) -> bool:
    """One region, and nothing left."""
    return result.get("regions") == 1 and not result["left"]


def is_right(result: Result) -> bool:
    """Ours ran, and gave MXNet's outputs by both ways, as far as the model was run.

    A detector whose boxes differ is right where each of its stages is, given the same data (`stages.stages`), for then
    the scores that ordered the boxes differ in their last bits.
    """
    if result.get("fallbacks"):
        return False
    if max(result["error"], result.get("block_error", 0.0)) <= TOLERANCE[result["kind"]]:
        return True
    return _is_right_by_stages(result)


def _is_right_by_stages(result: Result, of: str = "") -> bool:
    return result.get(f"{of}stage_error", 1.0) <= SAME and result[f"{of}stage_boxes"] <= TOLERANCE["boxes"]


def is_slow(result: Result) -> bool:
    """More than 10 % slower than MXNet's MKLDNN backend."""
    return result.get("ratio", 0.0) > 1.1


def is_same_as_file(result: Result) -> bool:
    """As a file it ran without MXNet and gave the bits of the process that compiled it."""
    return result.get("file") == SAME_BITS


def fails_as_file(result: Result) -> bool:
    """It was compiled into a file that is wrong, or could not be, although it is one region with nothing left."""
    return result.get("file", SAME_BITS) not in (SAME_BITS, SAME_MEANS) and (
        is_whole(result) or result["file"] != REFUSED)


def traced(results: Iterable[Result]) -> list[Result]:
    """Those that could be built without a download and traced."""
    return [result for result in results if "left_out" not in result and result["step"] not in ("build", "trace")]


def resolved(results: Iterable[Result]) -> list[Result]:
    """Where a model's graph is that of another, the other's figures; without those that aren't kept."""
    results = list(results)
    named = {(result["library"], result["model"]): result for result in results}
    found = []
    for result in results:
        if "same_as" not in result:
            found.append(result)
        elif (other := named.get((result["library"], result["same_as"]))) is not None:
            found.append({**other, **{key: result[key] for key in ("model", "genre", "inputs", "same_as")}})
    return found


def write_page(results: list[Result], header: str) -> str:
    """The whole page; `header` says on what machine and how."""
    seen = traced(results)
    names = runs(seen)
    parts = [_TITLE, header, "## Runs", _runs_table(names, seen), "## Summary", _summary(results, seen)]
    for genre, rows in _by_genre(seen).items():
        parts += [f"## {genre[0].upper()}{genre[1:]}", _table(rows, names)]
    if any("onnx" in result for result in seen):
        parts += ["## As ONNX", _as_onnx(seen)]
    parts += ["## What is left to MXNet, and why", _reasons(seen), "## Not examined", _not_examined(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _by_genre(results: Iterable[Result]) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in sorted(results, key=lambda found: (found["library"], found["model"])):
        groups[result["genre"]].append(result)
    return dict(sorted(groups.items()))


_FIGURES = {"regions": ("regions", "regions"), "run": ("error", "error"), "block": ("block_error", "block"),
            "file": ("file", "file"), "onnx": ("onnx", "ONNX"), "time": ("ratio", "time")}
"""By step, the figure that tells that it was done, and the word for it."""
Run = tuple[tuple[str, Any], ...]
"""What is known of a run, sorted by name."""


def _run(result: Result, step: str) -> Run | None:
    """The run that the step's figures are of."""
    found = result.get("runs", {}).get(step)
    return None if found is None else tuple(sorted(found.items()))


def runs(seen: Iterable[Result]) -> dict[Run, str]:
    """A name for each run, by day, threads, commit and machine."""
    found = {run for result in seen for step in _FIGURES if (run := _run(result, step)) is not None}

    def place(run: Run) -> tuple[str, ...]:
        known = dict(run)
        return tuple(str(known.get(key, "")) for key in ("when", "threads", "commit", "machine"))

    return {run: f"R{number}" for number, run in enumerate(sorted(found, key=place), 1)}


def _runs_table(names: dict[Run, str], seen: list[Result]) -> str:
    heads = ["run", "when", "commit", "machine", "threads", *(word for _, word in _FIGURES.values())]
    lines = [f"| {' | '.join(heads)} |", "|---|---|---|---|" + "---:|" * (len(heads) - 4)]
    for run, name in names.items():
        known = dict(run)
        cells = [name, *(known.get(key, "unknown") for key in ("when", "commit", "machine", "threads"))]
        cells += [sum(_run(result, step) == run and key in result for result in seen)
                  for step, (key, _) in _FIGURES.items()]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _runs_of(result: Result, names: dict[Run, str]) -> str:
    """The run of each of the model's figures."""
    found: dict[str, list[str]] = defaultdict(list)
    for step, (key, word) in _FIGURES.items():
        if key in result:
            run = _run(result, step)
            found["unknown" if run is None else names[run]].append(word)
    if len(found) == 1:
        return next(iter(found))
    return "; ".join(f"{', '.join(words)}: {name}" for name, words in found.items())


def _threads(result: Result) -> Any:
    """How many threads either backend had when the model was timed."""
    return result.get("runs", {}).get("time", {}).get("threads", "unknown")


def _summary(results: list[Result], seen: list[Result]) -> str:
    counted = sorted({_threads(result) for result in seen if "ratio" in result}, key=str)

    def median(rows: list[Result], threads: Any) -> list[Any]:
        timed = sorted(result["ratio"] for result in rows if "ratio" in result and _threads(result) == threads)
        return [len(timed), f"{timed[len(timed) // 2]:.2f}" if timed else ""]

    def row(name: str, rows: list[Result]) -> str:
        run = [result for result in rows if "error" in result]
        counts = [len(rows), sum("same_as" in result for result in rows), sum(map(is_whole, rows)),
                  sum("failure" in result for result in rows), len(run), sum(map(is_right, run)),
                  sum(map(is_slow, run)), sum("file" in result for result in rows), sum(map(is_same_as_file, rows)),
                  *(cell for threads in counted for cell in median(run, threads))]
        return f"| {name} | " + " | ".join(map(str, counts)) + " |"

    heads = ["genre", "traced", "of these same graph", "one region, nothing left", "failed", "run", "right",
             "over 10 % slower", "tried as a file", "as a file the same bits"]
    for threads in counted:
        heads += [f"timed, threads: {threads}", "median ratio of these"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    lines += [row(genre, rows) for genre, rows in _by_genre(seen).items()]
    lines.append(row("**all**", seen))
    out = sum("left_out" in result for result in results)
    return "\n".join(lines) + f"\n\n{out} of {len(results)} models can't be had without a download."


def is_right_as_onnx(result: Result, key: str = "onnx") -> bool:
    """Its file of this kind (`as_onnx.facts`) ran, and gave our outputs, a detector's as in `is_right`."""
    found = result.get(key)
    return isinstance(found, float) and (found <= as_onnx.RIGHT or _is_right_by_stages(result, f"{key}_"))


_ONNX = {"onnx": "ours in ONNX Runtime", "onnx_openvino": "ours in OpenVINO", "mxnet_onnx": "MXNet's in ONNX Runtime"}


def _as_onnx(seen: list[Result]) -> str:
    """How many files are right by genre, and what is wrong of ours."""
    rows = [f"| genre | whole | {' | '.join(_ONNX.values())} |", "|---|---:|" + "---:|" * len(_ONNX)]
    tried = [result for result in seen if "onnx" in result and is_whole(result)]
    for genre, results in [*_by_genre(tried).items(), ("**all**", tried)]:
        counts = [sum(is_right_as_onnx(result, key) for result in results) for key in _ONNX]
        rows.append(f"| {genre} | {len(results)} | {' | '.join(map(str, counts))} |")
    wrong = [f"* {result['model']}, {what}: " + _cell(found if isinstance(found, str) else f"differs by {found:.0e}")
             for result in tried for key, what in list(_ONNX.items())[:2]
             if not is_right_as_onnx(result, key) and (found := result.get(key)) is not None]
    return "\n".join([*rows, "", *wrong])


def _at_most(result: Result) -> str:
    """The largest error with which the model is right."""
    if "error" not in result:
        return ""
    most = f"{TOLERANCE[result['kind']]:.0e}"
    return f"{most}; stages {SAME:.0e}" if "stage_error" in result else most


def _table(rows: list[Result], names: dict[Run, str]) -> str:
    heads = ("model", "input", "regions", "nodes", "left", "error", "at most", "as a block", "file", "threads",
             "ours / MKLDNN ms", "ratio", "runs", "")
    lines = [f"| {' | '.join(heads)} |", "|---|---|---:|---:|---|---:|---|---:|---:|---:|---:|---:|---|---|"]
    for result in rows:
        left = Counter[str]()
        for op, _, count in result.get("left", ()):
            left[op] += count
        timed = "ratio" in result
        times = f"{result['ours_ms']:.1f} / {result['native_ms']:.1f}" if timed else ""
        note = _note(result)
        cells = (result["model"], _shapes(result), result.get("regions", ""), result.get("taken", ""), _kinds(left),
                 _figure(result, "error", "{:.0e}"), _at_most(result), _figure(result, "block_error", "{:.0e}"),
                 _file(result), _threads(result) if timed else "", times, _figure(result, "ratio", "{:.2f}"),
                 _runs_of(result, names), note)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def _file(result: Result) -> str:
    """Its size in megabytes, if its outputs are right, else what is wrong."""
    if result.get("file") in (SAME_BITS, SAME_MEANS):
        return f"{result['file_bytes'] / 1e6:.1f}"
    return f"**{result['file']}**" if fails_as_file(result) else result.get("file", "")


def _note(result: Result) -> str:
    if "failure" in result:
        return _cell(f"at {result['step']}: {result['failure']}")
    notes = [f"graph of {result['same_as']}"] if "same_as" in result else []
    if "error" in result:
        notes += _notes_on_outputs(result)
    if "file_reason" in result:
        notes.append(f"as a file: {_cell(result['file_reason'])}")
    elif result.get("file_difference"):
        apart = result["file_difference"]
        notes.append(f"as a file its samples' means differ by {apart:.1f} standard errors"
                     if result["file"] == SAME_MEANS else f"as a file it differs by {apart:.0e}")
    return ", ".join(notes)


def _notes_on_outputs(result: Result) -> list[str]:
    notes = [f"**MXNet ran it**: {_cell(reason)}" for reason in result.get("fallbacks", ())]
    if not notes and not is_right(result):
        notes.append("**differs**")
    if "stage_error" in result:
        notes.append(f"stages given the same data: {result['stage_error']:.0e}, boxes {result['stage_boxes']:.0e}")
        if "native_change" in result and not is_right(result):
            notes.append(f"MXNet's own change by {result['native_change']:.0e} when the data changes by 3e-07")
    if result.get("boxes") == 0:
        notes.append("no boxes to compare")
    if "mkldnn_failure" in result:
        notes.append(_cell(f"not timed: MKLDNN's second call fails, {result['mkldnn_failure']}"))
    if result.get("mkldnn_error", 0.0) > max(TOLERANCE[result["kind"]], SAME):
        notes.append(f"MKLDNN's own error {result['mkldnn_error']:.0e}")
    if not result["finite"]:
        notes.append("MXNet's outputs are not finite")
    return notes


def _shapes(result: Result) -> str:
    shapes = list(result["inputs"].values())
    text = ", ".join("x".join(map(str, shape)) for shape in shapes[:2])
    return text + (", ..." if len(shapes) > 2 else "")


def _kinds(left: Counter[str], most: int = 6) -> str:
    shown = [f"{op} x{count}" if count > 1 else op for op, count in left.most_common(most)]
    return ", ".join(shown) + (f", {len(left) - most} more kinds" if len(left) > most else "")


def _figure(result: Result, key: str, form: str) -> str:
    return form.format(result[key]) if key in result else ""


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _reasons(seen: list[Result]) -> str:
    return ranking(seen, lambda reason: re.sub(r"\d+", "#", reason))


def ranking(seen: list[Result], general: Callable[[str], str]) -> str:
    """Operators and reasons, those that concern the most models first."""
    models: dict[tuple[str, str], set[str]] = defaultdict(set)
    nodes = Counter[tuple[str, str]]()
    genres: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for result in seen:
        for op, reason, count in result.get("left", ()):
            kind = op, general(reason)
            if result["model"] not in models[kind]:
                genres[kind][result["genre"]] += 1
            models[kind].add(result["model"])
            nodes[kind] += count
    if not models:
        return "Nothing is left."
    lines = ["| operator | reason | models | nodes | genres |", "|---|---|---:|---:|---|"]
    for kind in sorted(models, key=lambda kind: (-len(models[kind]), -nodes[kind], kind)):
        where = ", ".join(f"{genre} {count}" for genre, count in genres[kind].most_common())
        lines.append(f"| {kind[0]} | {_cell(kind[1])} | {len(models[kind])} | {nodes[kind]} | {where} |")
    return "\n".join(lines)


def _not_examined(results: list[Result]) -> str:
    groups: dict[str, list[str]] = defaultdict(list)
    for result in results:
        if "left_out" in result:
            groups[result["left_out"]].append(result["model"])
        elif result["step"] in ("build", "trace"):
            groups[f"{result['step']} failed: {_cell(result['failure'])}"].append(result["model"])
    return "\n".join(f"* {reason}: {', '.join(sorted(names))}" for reason, names in sorted(groups.items()))
