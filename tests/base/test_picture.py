"""Pictures of graphs: no boxes that overlap, nothing outside, heights that fit, and what is written."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

import pytest

from ngraph_mxnet.base.drawing import BOX_WIDTH, GAP_X, Box, Edge, Look, cut_front, picture, spread
from ngraph_mxnet.ir import parse_graph
from ngraph_mxnet.tools.debug import to_svg

NAMESPACE = "{http://www.w3.org/2000/svg}"
LOOK, OTHER = Look("#aaaaaa", "#111111", "of a kind"), Look("#bbbbbb", "#222222", "of another kind")


def chain(length: int, branches: int = 1) -> str:
    """Stages of `branches` boxes each, which one box joins."""
    boxes, edges, last = [Box("begin", "", LOOK)], [], 0
    for stage in range(length):
        first = len(boxes)
        boxes += [Box(f"op{n}", f"stage{stage}_branch{n}", OTHER) for n in range(branches)]
        edges += [Edge(last, first + n, f"f32[{stage}]") for n in range(branches)]
        boxes.append(Box("join", f"stage{stage}_join", LOOK))
        edges += [Edge(first + n, len(boxes) - 1, "f32[1]", is_bold=n == 0) for n in range(branches)]
        last = len(boxes) - 1
    return picture(boxes, edges, "a title", ["a line that is long " * 30], "bold means this")


def rectangles(svg: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right, bottom of all boxes."""
    group = next(ElementTree.fromstring(svg).iter(f"{NAMESPACE}g"))
    return [(x := float(r.get("x", 0)), y := float(r.get("y", 0)), x + float(r.get("width", 0)),
             y + float(r.get("height", 0))) for r in group.iter(f"{NAMESPACE}rect")]


@pytest.mark.parametrize(("length", "branches"), [(1, 1), (5, 3), (60, 4), (150, 1)])
def test_boxes_are_apart_and_inside(length: int, branches: int) -> None:
    svg = chain(length, branches)
    root, boxes = ElementTree.fromstring(svg), rectangles(svg)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert len(boxes) == 1 + length * (branches + 1)
    for (a, b, c, d), (e, f, g, h) in combinations(boxes, 2):
        assert c <= e or g <= a or d <= f or h <= b
    shift = next(root.iter(f"{NAMESPACE}g")).get("transform", "").removeprefix("translate(").rstrip(")").split(",")
    assert all(a + float(shift[0]) >= 0 and c + float(shift[0]) <= width and d + float(shift[1]) <= height
               for a, _, c, d in boxes)


def test_deep_graphs_stand_in_columns() -> None:
    """One column of 121 rows would be 9,400 pixels high."""
    root = ElementTree.fromstring(chain(60, 4))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert 0.6 < width / height < 3 and height < 4500


def test_lines_are_broken_and_not_cut() -> None:
    root = ElementTree.fromstring(chain(1))
    texts = [text.text or "" for text in root.iter(f"{NAMESPACE}text")]
    assert " ".join(texts).count("a line that is long") == 30
    width = float(root.get("width", 0))
    assert all(float(text.get("x", 0)) + 6 * len(text.text or "") <= width for text in root.findall(f"{NAMESPACE}text"))


def test_the_legend_and_the_edges() -> None:
    svg = chain(2, 2)
    texts = "\n".join(text.text or "" for text in ElementTree.fromstring(svg).iter(f"{NAMESPACE}text"))
    assert all(f"\n{meaning}\n" in texts for meaning in ("of a kind", "of another kind", "bold means this"))
    assert texts.count("f32[0]") == 1 and svg.count('class="bold"') == 1 + 2


def test_names_are_cut_at_the_front() -> None:
    assert cut_front("a_very_long_name", 9) == "\u2026ong_name" and cut_front("short", 9) == "short"
    svg = picture([Box("op", "outer_" * 8 + "the_end", LOOK)], [], "t")
    assert "the_end</text>" in svg and "outer_" * 8 not in svg


def test_spread_keeps_order_and_distance_near_to_what_is_wanted() -> None:
    widths = [BOX_WIDTH] * 3
    far = [0.0, 1000.0, 2000.0]
    assert spread(far, widths) == far
    same = spread([50.0, 50.0, 50.0], widths)
    assert same == pytest.approx([50 - BOX_WIDTH - GAP_X, 50, 50 + BOX_WIDTH + GAP_X])
    assert spread([], []) == []


def test_graphs_without_their_weights() -> None:
    svg = to_svg(parse_graph("""
graph @small(%x: f32[2,3,5,6], %w: f32[4,3,1,1] weight) -> (f32[2,4,5,6], f32[4,3,1,1]) {
  %0: f32[4,3,1,1] = relu(%w)
  %1: f32[2,4,5,6] = convolution(%x, %0)  # mx:conv0 Convolution
  %2: f32[2,4,5,6] = relu(%1)
  return %2, %0
}
"""))
    assert len(rectangles(svg)) == 1 + 2 + 2
    assert "convolution" in svg and "mx:conv0" in svg and "f32[2,4,5,6]" in svg and "weights, constants" in svg
    assert len(rectangles(to_svg(parse_graph("graph @none() -> () {\n  return\n}\n")))) == 0
