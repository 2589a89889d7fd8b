#!/usr/bin/env python3
"""Ask a model server that runs: milliseconds of a request, requests a second, and the memory of its processes.

    python examples/serving/measure.py http://127.0.0.1:8080/predictions/model --shape 1,3,224,224 --pid PID
    python examples/serving/measure.py http://127.0.0.1:8080/v2/models/resnet/infer --shape 1,3,224,224 --input data
    python examples/serving/measure.py URL --shape 1,3,224,224 --clients 4 --seconds 10

Requests have random float32 numbers. With --input they are the Open Inference Protocol's JSON, else `.npy` files.
Memory is the proportional set size of the server's Python processes: pages that several share count in parts.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from timed import asked


def request(shape: tuple[int, ...], name: str | None) -> tuple[bytes, dict[str, str]]:
    """The body and its headers."""
    x = np.random.default_rng(0).random(shape, np.float32)
    if name is not None:
        tensor = {"name": name, "datatype": "FP32", "shape": list(shape), "data": x.ravel().tolist()}
        return json.dumps({"inputs": [tensor]}).encode(), {"Content-Type": "application/json"}
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue(), {"Content-Type": "application/x-npy", "Accept": "application/json"}


def python_memory(pid: int) -> float:
    """MB of the process and of all that it started, as far as they are Python's."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it has ended
            continue
        parents[int(path.parent.name)] = int(text.rpartition(")")[2].split()[1])
    found, total = {pid}, 0.0
    for _ in range(8):
        found |= {child for child, parent in parents.items() if parent in found}
    for one in found:
        name = Path(f"/proc/{one}/comm").read_text()
        if name.startswith(("python", "mlserver")):
            fields = Path(f"/proc/{one}/smaps_rollup").read_text().split()
            total += int(fields[fields.index("Pss:") + 1]) / 1024
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url", help="that takes the requests")
    parser.add_argument("--shape", required=True, help="of the input, as 1,3,224,224")
    parser.add_argument("--input", metavar="NAME", help="the input's name, for the Open Inference Protocol")
    parser.add_argument("--clients", type=int, default=1, help="threads that ask; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=10, help="for which they ask; default: %(default)s")
    parser.add_argument("--pid", type=int, help="the server's process, whose memory is told")
    parser.add_argument("--answer", action="store_true", help="print the answer, too")
    options = parser.parse_args()
    body, headers = request(tuple(int(size) for size in options.shape.split(",")), options.input)
    asked(options.url, body, options.clients, 1, headers)
    taken, answer = asked(options.url, body, options.clients, options.seconds, headers)
    ordered = sorted(taken)
    told = {"clients": options.clients, "requests_per_s": len(taken) / options.seconds, "least_ms": ordered[0] * 1e3,
            "median_ms": statistics.median(ordered) * 1e3, "p99_ms": ordered[int(0.99 * (len(ordered) - 1))] * 1e3}
    if options.pid:
        told["python_memory_mb"] = python_memory(options.pid)
    print(json.dumps({name: round(value, 2) for name, value in told.items()}))
    if options.answer:
        print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
