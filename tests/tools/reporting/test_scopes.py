"""The blocks that names tell of."""

from __future__ import annotations

from ngraph_mxnet.tools.reporting import scopes


def blocks(*names: str) -> list[str]:
    """For each name the blocks that it is in, joined by `>`."""
    found, innermost = scopes(names)

    def path(scope: int) -> list[str]:
        return [] if scope < 0 else [*path(found[scope].parent), found[scope].label]

    return [">".join(path(scope)) for scope in innermost]


def test_blocks_of_gluon_names() -> None:
    assert blocks("net_conv0_fwd", "net_stage1_conv0_fwd", "net_stage1_relu_fwd", "net_stage2_a", "net_stage2_b",
                  "net_dense0_fwd") == ["", "net_stage1", "net_stage1", "net_stage2", "net_stage2", ""]


def test_blocks_within_blocks() -> None:
    assert blocks("a_x_0", "a_x_1", "a_y_0", "a_y_1", "b_0", "b_1") == ["a>x", "a>x", "a>y", "a>y", "b", "b"]


def test_paths_are_cut_at_slashes_and_dots_alone() -> None:
    assert blocks("/layer_1/conv_0/Conv", "/layer_1/conv_0/Relu", "/layer_1/Add", "/head/Gemm") == \
        ["layer_1>conv_0", "layer_1>conv_0", "layer_1", ""]


def test_numbered_operators_are_no_blocks() -> None:
    names = [f"{operator}_{number}" for number in range(6) for operator in ("Conv", "Relu", "Add")]
    assert blocks(*names) == [""] * 18


def test_nodes_without_names() -> None:
    assert blocks("", "", "a_0", "a_1", "") == ["", "", "a", "a", ""]
    assert scopes([]) == ([], [])


def test_a_block_comes_behind_the_one_around_it() -> None:
    found, _ = scopes(["a_x_0", "a_x_1", "a_y_0", "a_y_1", "b_z_0", "b_z_1", "b_w"])
    assert all(scope.parent < place for place, scope in enumerate(found))
