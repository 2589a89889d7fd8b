"""Traces and calibrations as files, and what is refused in them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from ngraph_mxnet.distributed.simulation import Calibration, Cluster, Gradient, Link, Scheme, SimulationError, Trace

TRACE = Trace("net", 8, 2, "a CPU", 1, 2.0, 0.3, (Gradient("w", 40, 0.5), Gradient("b", 4, 0.5)), 1, 2, "by hand")
CALIBRATION = Calibration(1e-6, 5e9, 3e-10, 1e-10, 2e-10, 0.25, True, "an MPI", "a CPU")


def test_traces_come_back(tmp_path: Path) -> None:
    TRACE.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json") == TRACE
    assert json.loads((tmp_path / "trace.json").read_text())["version"] == 1


def test_calibrations_come_back_and_fit_the_cluster(tmp_path: Path) -> None:
    CALIBRATION.save(tmp_path / "found.json")
    assert Calibration.load(tmp_path / "found.json") == CALIBRATION
    cluster = Cluster(2, Link(1e-5, 1e9))
    same = CALIBRATION.of(cluster, 2)
    assert same == Cluster(2, Link(1e-5, 1e9), 1, Link(1e-6, 5e9), 3e-10, 1e-10, 2e-10, 0.125)
    apart = replace(CALIBRATION, same_node=False).of(cluster, 1)
    assert apart.network == Link(1e-6, 5e9) and apart.memory == cluster.memory


def changed(tmp_path: Path, **changes: Any) -> Path:
    """TRACE's file with other fields; None: without the field."""
    content = {"format": "ngraph-mxnet step trace", "version": 1, **asdict(TRACE), **changes}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))
    return path


def test_the_file_of_these_tests_is_a_trace(tmp_path: Path) -> None:
    assert Trace.load(changed(tmp_path)) == TRACE


@pytest.mark.parametrize(("changes", "words"), [
    ({"format": "pictures"}, "found format 'pictures', version 1, expected 'ngraph-mxnet step trace', version 1"),
    ({"version": 2}, "version 2"),
    ({"batch": None}, "trace: found no batch"),
    ({"bacth": 8}, "trace: found the fields bacth, expected among model, batch"),
    ({"batch": 8.5}, "trace, batch: found 8.5, expected of type int"),
    ({"batch": True}, "trace, batch: found True"),
    ({"batch": 0}, "batch: found 0"),
    ({"model": 3}, "trace, model: found 3, expected of type str"),
    ({"rank": 2}, "rank: found 2, expected below ranks, 2"),
    ({"forward_seconds": float("nan")}, "forward_seconds: found nan"),
    ({"update_seconds": -1.0}, "update_seconds: found -1.0"),
    ({"backward_seconds": 0.4}, "gradient w, ready_seconds: found 0.5, expected from 0.0"),
    ({"gradients": []}, "gradients: found none"),
    ({"gradients": {}}, "gradients: found dict, expected a list"),
    ({"gradients": [3]}, "a gradient: found int, expected an object"),
    ({"gradients": [{"name": "w", "bytes": 0, "ready_seconds": 0}]}, "gradient w, bytes: found 0"),
    ({"gradients": [{"name": "w", "bytes": 6, "ready_seconds": 0}]}, "gradient w, bytes: found 6, .*of float32"),
    ({"gradients": [{"name": "w", "bytes": 4, "ready_seconds": 1}, {"name": "b", "bytes": 4, "ready_seconds": 0.5}]},
     "gradient b, ready_seconds: found 0.5, expected from 1, that of the one before"),
])
def test_what_is_no_trace_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SimulationError, match=words) as caught:
        Trace.load(changed(tmp_path, **changes))
    assert "trace.json" in str(caught.value)


@pytest.mark.parametrize("content", ["", "[1]", "{}", "\"x\""])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "trace.json").write_text(content)
    with pytest.raises(SimulationError, match=r"trace\.json"):
        Trace.load(tmp_path / "trace.json")
    with pytest.raises(SimulationError, match=r"none\.json can't be read"):
        Calibration.load(tmp_path / "none.json")


@pytest.mark.parametrize(("make", "words"), [
    (lambda: Cluster(0, Link(0, 1)), "nodes: found 0"),
    (lambda: Cluster(1, Link(0, 1), taken_share=1.5), "taken_share: found 1.5, expected from 0 to 1"),
    (lambda: Cluster(1, Link(0, 1), poll_seconds=-1), "poll_seconds: found -1"),
    (lambda: Cluster(1, Link(0, 1), compute_speed=0), "compute_speed: found 0"),
    (lambda: Cluster(1, Link(0, 1), jitter=-1), "jitter: found -1"),
    (lambda: Link(-1, 1), "latency_seconds: found -1"),
    (lambda: Link(0, 0), "bytes_per_second: found 0"),
    (lambda: Link(0, float("nan")), "bytes_per_second: found nan"),
    (lambda: Scheme(bucket_bytes=-1), "bucket_bytes: found -1"),
    (lambda: replace(CALIBRATION, taken_share=2.0), "taken_share: found 2.0"),
])
def test_numbers_out_of_bounds_are_refused(make: Any, words: str) -> None:
    with pytest.raises(SimulationError, match=words):
        make()
