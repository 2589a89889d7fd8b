"""Names of nodes in tables: a prefix that all share stands in the title, one of a row in front of its names."""

from __future__ import annotations

import pytest
from rich.console import Console

from ngraph_mxnet.base.rendered import common_prefix
from ngraph_mxnet.targets.cpu.machine.peak import Peak
from ngraph_mxnet.targets.cpu.report import Profile, Row
from ngraph_mxnet.tools.layouts import titled

FUSED = "convolution (mx:net0_stage1_conv0_fwd Convolution + mx:net0_stage1_relu0_fwd Activation)"


@pytest.mark.parametrize(("names", "prefix"), [
    (["net0_stage1_conv0", "net0_stage1__plus0", "net0_dense0"], "net0_"),
    (["net0_stage1_conv0", "net0_stage1_relu0"], "net0_stage1_"),
    (["net0_conv0", "net0_conv10"], "net0_"),
    (["/layer_1/conv_0/Conv", "/layer_1/conv_0/Relu"], "/layer_1/conv_0/"),
    (["/layer_1/Conv", "/layer_2/Conv"], "/"),
    (["net0_stage1", "net0_stage1_relu0"], "net0_"),
    (["net0_conv0", "net0_conv0"], "net0_"),
    (["conv0", "conv1"], ""), (["net0_conv0"], ""), ([], ""),
])
def test_what_names_begin_with(names: list[str], prefix: str) -> None:
    assert common_prefix(names) == prefix


def test_the_title_has_what_all_names_share() -> None:
    title, cells = titled("Nodes", [FUSED, "tanh (mx:net0_out_fwd Activation)", "reorder"])
    assert title == "Nodes of net0_"
    assert cells == ["stage1_{conv0_fwd + relu0_fwd}", "out_fwd", "reorder"]


def test_names_that_share_nothing_stay_whole() -> None:
    assert titled("Nodes", ["tanh (mx:net0_out Activation)", "relu (mx:last Activation)"]) == \
        ("Nodes", ["net0_out", "last"])


def test_a_profile_tells_a_prefix_once() -> None:
    rows = [Row("contraction", FUSED, 1, 2.0, 1.0, 1.0), Row("tanh", "tanh (mx:net0_[x]_fwd Activation)", 1, 1.0, 0, 1)]
    shown = Console(width=140)
    with shown.capture() as text:
        shown.print(Profile(1, "avx2", 1, Peak(1, 100.0, 10.0), rows, 4.0, 0.5, 0.5))
    assert text.get().count("net0_") == 1
    for expected in ("Kernels by node of net0_", "stage1_{conv0_fwd + relu0_fwd}", "[x]_fwd"):
        assert expected in text.get()


@pytest.mark.parametrize(("peak", "explained"), [(1000.0, True), (3000.0, False)])
def test_rates_above_the_peak_are_explained(peak: float, explained: bool) -> None:
    rows = [Row("winograd", "convolution (mx:conv Convolution)", 1, 1.0, 2.0, 0.0)]
    found = Profile(1, "avx2", 1, Peak(1, peak, 10.0), rows, 1.0, 0.0, 0.0)
    assert (found.to_dict()["note"] is not None) == explained == ("Winograd's algorithm" in str(found))
