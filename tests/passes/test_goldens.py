"""One golden a pass: a graph that shows what the pass does and what it leaves alone, before and after it.

`tests/golden/passes/NAME.ngraph` holds the IR before, a line `after`, and the IR after. For a new pass write the first
part and that line; `--update-goldens` writes the rest.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pass_helpers import check_passes

from ngraph_mxnet import passes, quantisation
from ngraph_mxnet.ir import parse_graph, print_graph
from ngraph_mxnet.passes import FixedPoint, Pass
from ngraph_mxnet.quantisation.byte_products import quantize_early, sums_of_pairs
from ngraph_mxnet.targets.cpu.codegen.clusters import cluster_pass
from ngraph_mxnet.targets.cpu.pipeline import pipeline

FOLDER = Path(__file__).parents[1] / "golden" / "passes"
OF_THE_CPU = {"gradients", "inline_bodies", "widening"}
SEPARATOR = "after\n"


def known_passes() -> dict[str, Pass]:
    """By name; those of a group too. The CPU's pipeline has them all, and some of its own; that of a recipe's products
    comes behind it, as bytes or as pairs."""
    found: dict[str, Pass] = {"clusters": cluster_pass(), "quantize_early": quantize_early(),
                              "sums_of_pairs": sums_of_pairs()}
    for item in pipeline():
        found.update({each.name: each for each in (item.passes if isinstance(item, FixedPoint) else (item,))})
    return {name: each for name, each in found.items() if name not in OF_THE_CPU}


PASSES = known_passes()


def test_every_pass_has_a_golden() -> None:
    folders = {passes: "*.py", quantisation: "byte_*.py"}
    sources = [path.read_text() for one, names in folders.items() for path in Path(one.__file__).parent.glob(names)]
    pattern = re.compile(r'return \w+Pass\("(\w+)"|^    name = "(\w+)"$', re.MULTILINE)
    named = {one or other for source in sources for one, other in pattern.findall(source)}
    assert set(PASSES) == named - OF_THE_CPU, "each pass has a place in a pipeline"
    assert {path.stem for path in FOLDER.glob("*.ngraph")} == set(PASSES), "a golden for each pass, and no other"


@pytest.mark.parametrize("name", PASSES)
def test_golden(name: str, golden) -> None:
    before, _, _ = (FOLDER / f"{name}.ngraph").read_text(encoding="utf-8").partition(SEPARATOR)
    graph = parse_graph(before)
    after = print_graph(check_passes(graph, PASSES[name]))
    assert after != print_graph(graph), "the graph shows nothing: the pass leaves it as it is"
    golden(f"passes/{name}.ngraph", f"{before}{SEPARATOR}{after}")
