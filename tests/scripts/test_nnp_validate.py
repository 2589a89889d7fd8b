"""The comparison of the simulated NNP with published figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from mlperf.page import page
from mlperf.published import FROZEN, LOADS, parameters_hash, rows
from mlperf.resnet import random_weights, resnet50
from mlperf.scenarios import PUBLISHED, product
from nnp_validate import PAGE, main

from ngraph_mxnet.ir.graph import graph_cost


def test_the_model_is_v1_5():
    """4.089 billion multiply-adds; v1, with the stride in the 1x1 convolution, has 3.857."""
    graph = resnet50(2)
    assert graph_cost(graph).macs == 2 * 4_089_184_256
    strided = [node for node in graph.nodes if node.op.name == "convolution" and node.attrs["strides"] == (2, 2)]
    assert sorted({node.inputs[1].shape[2] for node in strided}) == [1, 3, 7]  # 1: shortcuts only
    assert sum(node.inputs[1].shape[2] == 1 for node in strided) == 3
    assert [array.shape for array in random_weights(graph)] == [value.shape for value in graph.parameters[1:]]


def test_no_parameter_differs_from_the_frozen_hash():
    assert parameters_hash() == FROZEN, (
        "a parameter of a device or of lowering has changed: run scripts/nnp_validate.py --write, say in the change "
        "why, and set FROZEN in scripts/mlperf/published.py")


def test_rows_have_their_sources():
    found = {row.id: row for row in rows()}
    assert len(found) == len(rows()) == len(PUBLISHED)
    for row in found.values():
        assert row.kind in ("primary", "secondary", "derived", "memory") and row.value > 0 and row.unit
        assert ("f5acb8b" in row.source) == (row.kind != "memory")
        assert set(row.follows) < found.keys()
        assert not (row.kind == "memory" and (row.within or row.least)), "memory is no ground for a bound"
    independent = {row.id for row in found.values() if row.within and not row.follows}
    assert independent == {"offline", "server-least"}
    assert {f"{load.id}-{name}" for load in LOADS for name in load.latencies} < found.keys()


def test_products_of_the_nnp_t_are_what_their_rows_say():
    gemm, conv = product("gemm-1024x700x512"), product("conv-c128-28x28-k512-1x1-n128")
    assert graph_cost(gemm).macs == 1024 * 700 * 512
    assert conv.results[0].shape == (128, 512, 28, 28) and graph_cost(conv).macs == 128 * 512 * 28 * 28 * 128


@pytest.mark.slow
def test_the_bounds_hold_and_the_page_has_the_results():
    result = CliRunner().invoke(main, ["--json"])
    found = json.loads(result.stdout)
    assert result.exit_code == 0 and found["holds"] and found["hash"]["same"]
    assert {row["id"] for row in found["rows"] if row["holds"]} >= {"offline", "burst-same", "server-least",
                                                                  "server-10304-p50", "server-10402-p99"}
    text = Path(PAGE).read_text(encoding="utf-8")
    fresh = page(found)
    for table in ("| row | kind", "| load | free slot", "| two chips of"):
        _, begin, rest = fresh.partition(table)
        assert begin + rest.partition("\n\n")[0] in text, "run scripts/nnp_validate.py --write"
