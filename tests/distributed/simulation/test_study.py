"""Curves and variants of a trace, as tables and as a picture; predictions beside measured steps."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clusters.measured import Measured, compare
from clusters.study import UNCHANGED, Study, plot, study, variants

from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.distributed.simulation import Cluster, Gradient, Link, Scheme, SimulationError, Trace, predict

TRACE = Trace("net", 16, 2, "a CPU", 0.02, 0.04, 0.002, (
    Gradient("dense", 8 << 20, 0.004), Gradient("deep", 20 << 20, 0.02), Gradient("bias", 4 << 10, 0.03),
    Gradient("shallow", 1 << 20, 0.04)))
CLUSTER = Cluster(1, Link(1e-5, 1e9), steps=20)


def small_study(**changes: Any) -> Study:
    return study(TRACE, replace(CLUSTER, **changes), Scheme(), [1, 4, 32], [10, 100])


def test_tables(golden: Callable[[str, str], None]) -> None:
    golden("simulated_cluster.txt", f"{small_study()}\n")


def test_points_are_predictions() -> None:
    found = small_study()
    expected = predict(TRACE, Cluster(4, Link(1e-5, 12.5e9), steps=20))
    assert found.curves[100][1] == expected
    by_point = {(point["gbit"], point["nodes"]): point for point in json.loads(json.dumps(found.to_dict()))["curves"]}
    assert by_point[100, 4]["step_seconds"] == expected.step_seconds
    assert by_point[100, 4]["efficiency"] == expected.efficiency


def test_each_variant_has_one_change() -> None:
    found = variants(replace(CLUSTER, nodes=8), Scheme(bf16=True))
    assert found.pop(UNCHANGED) == (replace(CLUSTER, nodes=8), Scheme(bf16=True))
    assert "bf16 on the wire" not in found and "messages in the nodes" not in found
    assert found["no overlap"] == (replace(CLUSTER, nodes=8), Scheme(bf16=True, overlap=False))
    assert found["jitter of 5%"] == (replace(CLUSTER, nodes=8, jitter=0.05), Scheme(bf16=True))
    assert all(changed != (replace(CLUSTER, nodes=8), Scheme(bf16=True)) for changed in found.values())


def test_variants_of_several_ranks_a_node_are_those_that_are_modelled() -> None:
    found = small_study(ranks_per_node=4).variants
    assert {"messages in the nodes", "tree", "recursive halving"} <= found.keys()
    messages = study(TRACE, replace(CLUSTER, ranks_per_node=4), Scheme(shared_memory=False), [1, 32], [10]).variants
    assert "no overlap" in messages and not {"tree", "messages in the nodes"} & messages.keys()
    assert all(math.isfinite(each.step_seconds) for row in found.values() for each in row.values())


@pytest.mark.parametrize(("nodes", "gbits"), [([], [10]), ([1], [])])
def test_a_study_of_nothing_is_refused(nodes: list[int], gbits: list[float]) -> None:
    with pytest.raises(SimulationError, match="found none, expected one number at least"):
        study(TRACE, CLUSTER, Scheme(), nodes, gbits)


def test_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib of the extra bench is not installed")
    plot([small_study(), small_study(jitter=0.1)], tmp_path / "efficiency.svg")
    first = (tmp_path / "efficiency.svg").read_text()
    assert first.count('<g id="axes_') == 2
    plot([small_study(), small_study(jitter=0.1)], tmp_path / "efficiency.svg")
    assert (tmp_path / "efficiency.svg").read_text() == first
    with pytest.raises(ConfigError, match=r"efficiency\.nothing"):
        plot([small_study()], tmp_path / "efficiency.nothing")


def test_without_matplotlib_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match="pip install matplotlib"):
        plot([small_study()], tmp_path / "efficiency.svg")


def test_measured_steps_choose_their_trace() -> None:
    """That of as many ranks on the node; the slowest of its ranks."""
    beside = [replace(TRACE, rank=rank, ranks=2, forward_seconds=0.03 + 0.01 * rank) for rank in (0, 1)]
    other = replace(TRACE, batch=8, forward_seconds=9.0)
    steps = [Measured("net", 16, 0.1, nodes=4, gbit=100, overlap=False), Measured("net", 16, 0.1, ranks_per_node=2)]
    apart, same = compare([other, *beside, TRACE], lambda trace: CLUSTER, Scheme(), steps)
    expected = predict(TRACE, Cluster(4, Link(1e-5, 12.5e9), steps=20), Scheme(overlap=False))
    assert apart.prediction == expected
    assert apart.error == pytest.approx(expected.step_seconds / 0.1 - 1)
    assert same.prediction == predict(beside[1], replace(CLUSTER, ranks_per_node=2))
    with pytest.raises(SimulationError, match="traces of net, batch 8: found none"):
        compare([TRACE], lambda trace: CLUSTER, Scheme(), [Measured("net", 8, 0.1)])


def test_measured_steps_are_read(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    path.write_text('[{"model": "net", "batch": 16, "step_seconds": 1, "ranks_per_node": 2}]')
    assert Measured.load(path) == [Measured("net", 16, 1, ranks_per_node=2)]
    for text, words in (("[]", "expected a list of measured steps"), ("{}", "expected a list of measured steps"),
                        ('[{"model": "net", "batch": 16}]', r"measured\.json: a measured step: found no step_seconds"),
                        ('[{"model": "net", "batch": 16, "step_seconds": 0}]', "step_seconds: found 0")):
        path.write_text(text)
        with pytest.raises(SimulationError, match=words):
            Measured.load(path)
