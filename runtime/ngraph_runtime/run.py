"""The command `ngraph-run`, also `python -m ngraph_runtime`."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any, Iterator, Sequence

import numpy as np

from ngraph_runtime.errors import InputError, NGraphRuntimeError
from ngraph_runtime.model import Model, load
from ngraph_runtime.ports import Port, bounds, shown
from ngraph_runtime.reference import verify

_EPILOG = """examples:
  ngraph-run model.ngraph --list
  ngraph-run model.ngraph --input data=x.npy --output-dir out/
  ngraph-run model.ngraph --time 100 --threads 2
  ngraph-run model.ngraph --verify

Ends with 0; with 1 if --verify finds a difference or nothing to verify with; with 2 after any other error."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except (NGraphRuntimeError, OSError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ngraph-run", description="Runs a model that `python -m ngraph_mxnet compile` has written.",
        epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action=_Version, help="the version of ngraph-runtime")
    parser.add_argument("model", help="the file, such as model.ngraph")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy", dest="inputs",
                        help="an input; once for each")
    parser.add_argument("--output-dir", type=Path, metavar="FOLDER", help="where each output is written as NAME.npy")
    parser.add_argument("--threads", type=_count(0), default=0, metavar="N",
                        help="at most so many; 0, the default: as many as there are cores")
    parser.add_argument("--time", type=_count(1), metavar="N", dest="calls",
                        help="the time of N calls, on random inputs if none are given")
    parser.add_argument("--pause", type=_milliseconds, default=0.0, metavar="MS",
                        help="milliseconds of rest behind each of them, as requests of a server come")
    parser.add_argument("--busy", type=_count(0), default=0, metavar="N",
                        help="processes that compute all the time beside them")
    parser.add_argument("--shape-set", type=_count(0), default=0, metavar="N",
                        help="which set of shapes random inputs have: 0, the default, is the first")
    parser.add_argument("--shape", action="append", default=[], metavar="NAME=D,D,...", dest="shapes",
                        help="the shape of a random input, where the model takes a range; once for each input")
    parser.add_argument("--list", action="store_true", help="inputs, outputs, metadata and sets of shapes")
    parser.add_argument("--verify", action="store_true",
                        help="run the inputs that the file holds, and compare with its expected outputs")
    parser.add_argument("--tolerance", type=float, metavar="X",
                        help="the largest difference that --verify allows, as a part of the largest expected element")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


class _Version(argparse.Action):
    """Looked up when it is asked for, as that takes longer than all else."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        import ngraph_runtime

        print(f"ngraph-runtime {ngraph_runtime.__version__}")
        parser.exit()


def _count(least: int) -> Any:
    def count(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"found {text}, expected a number from {least}")
        return int(text)

    return count


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text}, expected milliseconds, a number from 0")
    return value


def _run(options: argparse.Namespace) -> int:
    model = load(options.model, threads=options.threads)
    report: dict[str, Any] = {}
    status = 0
    if not (options.inputs or options.calls or options.verify):
        options.list = True
    if options.list:
        report.update(_listed(model))
    if options.verify:
        compared = verify(model, options.tolerance)
        report["verify"] = [one._asdict() for one in compared]
        status = int(not compared or not all(one.matches for one in compared))
    inputs: Any = None
    if options.inputs:
        inputs = _read_inputs(options.inputs)
        report["outputs_found"] = _computed(model, inputs, options.output_dir)
    elif options.output_dir is not None:
        raise InputError("--output-dir needs inputs: --input NAME=FILE.npy")
    if options.calls:
        drawn_or_read = inputs if options.inputs else _drawn(model, _shapes(model, options))
        with _busy_processes(options.busy):
            report["time"] = _timed(model, drawn_or_read, options.calls, options.pause / 1e3)
    print(json.dumps(report) if options.json else "\n".join(_lines(report)))
    return status


def _listed(model: Model) -> dict[str, Any]:
    def port(one: Port) -> dict[str, Any]:
        return {"name": one.name, "element": one.element, "shapes": one.shapes, "ranges": one.ranges}

    return {
        "name": model.name, "made_by": model.made_by, "precision": model.precision, "metadata": model.metadata,
        "instruction_set": model.instruction_set, "shape_sets": len(model.shape_sets),
        "ranges": [{"symbols": one.symbols, "guards": one.guards} for one in model.ranges],
        "inputs": [port(one) for one in model.inputs], "outputs": [port(one) for one in model.outputs],
    }


def _read_inputs(given: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given:
        # What has no "=" in its file's name: an input's name may have one, as names of ONNX models do.
        name, equals, file = text.rpartition("=")
        if not equals or not name:
            raise InputError(f"--input: found {text}, expected NAME=FILE.npy")
        if name in found:
            raise InputError(f"--input {name} is given twice")
        try:
            found[name] = np.load(file, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InputError(f"--input {name}: {file} is no .npy file: {error}") from error
    return found


def _computed(model: Model, inputs: dict[str, Any], folder: Path | None) -> list[dict[str, Any]]:
    outputs = model.run(inputs)
    files: list[str] = []
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for port, output in zip(model.outputs, outputs):
            name = re.sub(r"[^\w.-]", "_", port.name).lstrip(".") or "output"
            if f"{name}.npy" in files:
                name = f"{name}_{len(files)}"
            np.save(folder / f"{name}.npy", output)
            files.append(f"{name}.npy")
    return [{"name": port.name, "element": port.element, "shape": output.shape,
             **({"file": str(folder / files[place])} if folder is not None else {})}
            for place, (port, output) in enumerate(zip(model.outputs, outputs))]


def _shapes(model: Model, options: argparse.Namespace) -> dict[str, tuple[int, ...]]:
    """Those that random inputs have."""
    if not options.shapes:
        if not model.shape_sets:
            raise InputError(f"the model takes ranges of sizes, {model.ranges[0]}: give --shape NAME=D,D,... for each "
                             "input")
        if options.shape_set >= len(model.shape_sets):
            raise InputError(f"--shape-set: found {options.shape_set}, expected one below {len(model.shape_sets)}")
        return model.shape_sets[options.shape_set].inputs
    found = {}
    for text in options.shapes:
        name, _, sizes = text.rpartition("=")
        if not name or not all(size.isdigit() for size in sizes.split(",")):
            raise InputError(f"--shape: found {text}, expected NAME=D,D,...")
        found[name] = tuple(int(size) for size in sizes.split(","))
    names = [port.name for port in model.inputs]
    if sorted(found) != sorted(names):
        raise InputError(f"--shape: found {', '.join(found)}, expected one for each of {', '.join(names)}")
    return found


def _drawn(model: Model, shapes: dict[str, tuple[int, ...]]) -> list[np.ndarray[Any, Any]]:
    """Random floats; integers are 0, which is a valid index of anything."""
    random = np.random.RandomState(0)
    return [random.random_sample(shapes[port.name]).astype(port.dtype) if port.dtype.kind == "f"
            else np.zeros(shapes[port.name], port.dtype) for port in model.inputs]


@contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    code = "print(flush=True)\nwhile True: pass"
    started = [subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _timed(model: Model, inputs: Any, calls: int, pause: float) -> dict[str, Any]:
    """`cpu_ms`: of all threads for a call, those that stay awake in the pauses included."""
    times = []
    for call in range(-min(5, calls), calls):  # the first ones, which page the weights in, do not count
        if call == 0:
            cpu_began = process_time()
        began = perf_counter()
        model.run(inputs)
        if call >= 0:
            times.append(1e3 * (perf_counter() - began))
        if pause:
            sleep(pause)
    cpu = 1e3 * (process_time() - cpu_began) / calls
    times.sort()
    return {"calls": calls, "median_ms": median(times), "least_ms": times[0],
            **{f"p{share}_ms": times[-(-share * calls // 100) - 1] for share in (90, 99)}, "most_ms": times[-1],
            "cpu_ms": cpu}


def _lines(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    lines = []
    if "inputs" in report:
        lines += [f"{key.replace('_', ' ')}: {report[key]}" for key in
                  ("name", "made_by", "precision", "instruction_set")]
        lines += [f"metadata {key}: {value}" for key, value in report["metadata"].items()]
        for number in range(report["shape_sets"]):
            lines.append(f"set of shapes {number}:")
            lines += [f"  {kind} {port['name']}: {port['element']} {shown(port['shapes'][number])}"
                      for kind in ("input", "output") for port in report[f"{kind}s"]]
        for number, one in enumerate(report["ranges"]):
            lines.append(f"range {number}:")
            lines += [f"  {kind} {port['name']}: {port['element']} {shown(port['ranges'][number])}"
                      for kind in ("input", "output") for port in report[f"{kind}s"]]
            lines += [f"  {name} {bounds(low, high)}" for name, (low, high) in one["symbols"].items()]
            lines += [f"  where {guards}" for guards in one["guards"] if guards]
    for one in report.get("verify", ()):
        lines.append(f"set {one['shape_set']}, {one['output']}: {'matches' if one['matches'] else 'DIFFERS'}, "
                     f"difference {one['difference']:.2g}")
    if report.get("verify") == []:
        lines.append("the file holds nothing to verify with")
    for one in report.get("outputs_found", ()):
        lines.append(f"{one['name']}: {one['element']} {shown(one['shape'])}" + (
            f" in {one['file']}" if "file" in one else ""))
    if "time" in report:
        time = report["time"]
        lines.append(f"{time['calls']} calls: median {time['median_ms']:.3f} ms, {time['least_ms']:.3f} to "
                     f"{time['most_ms']:.3f} ms, p99 {time['p99_ms']:.3f} ms; CPU time {time['cpu_ms']:.3f} ms")
    return lines


if __name__ == "__main__":
    sys.exit(main())
