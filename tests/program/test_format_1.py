"""Files of format 1, which ngraph_mxnet 0.2.0 wrote: they are read, described, run, and written again as format 2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from artefact_runs import bound, of, run
from click.testing import CliRunner

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.ir import Builder, Graph
from ngraph_mxnet.program.artefact import FORMAT, HEADER, load, read, to_bytes
from ngraph_mxnet.program.executable import InputError
from ngraph_mxnet.tools.cli.commands import main

FOLDER = Path(__file__).with_name("format_1")
FIXED, RANGE = FOLDER / "fixed.bin", FOLDER / "range.bin"


def numbers(*shape: int) -> np.ndarray:
    return np.sin(np.arange(np.prod(shape), dtype=np.float64)).reshape(shape).astype(np.float32)


def convolved(batch: int) -> Graph:
    """What fixed.bin computes, for a batch of 1 and of 2."""
    b = Builder(name="net")
    x = b.parameter("x", (batch, 3, 6, 6))
    y = b.relu(b.convolution(x, b.constant(numbers(4, 3, 3, 3)), pads_begin=(1, 1), pads_end=(1, 1)))
    return b.results(b.reduce_mean(y, axes=(2, 3)), b.relu(x))


def rows(x: np.ndarray) -> np.ndarray:
    """What range.bin computes, for 1 to 8 rows; it has 3 as a set of shapes."""
    product = x @ numbers(4, 4)
    return product + np.ones((2, 4), np.float32) if len(x) == 1 else np.maximum(product, 0)


@pytest.mark.parametrize("path", [FIXED, RANGE], ids=lambda path: path.stem)
def test_it_is_of_format_1(path: Path) -> None:
    assert HEADER.unpack_from(path.read_bytes())[1] == 1


def test_a_file_of_shapes_runs() -> None:
    model, artefact = ngraph_mxnet.compile(FIXED), load(FIXED)
    for number in (0, 1):
        x = numbers(number + 1, 3, 6, 6) * 3
        expected = ngraph_mxnet.compile(convolved(number + 1), "INTERPRETER")(x)
        reference = artefact.references[number]
        for found, wanted in ((model(x), expected), (model(*reference.inputs), reference.outputs)):
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-5)
        for one, other in zip(run(of(artefact, "baseline", number), [x]), model(x), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_file_of_a_range_runs() -> None:
    model = ngraph_mxnet.compile(RANGE)
    for count in (1, 2, 3, 8):
        x = numbers(count, 4) * 3
        np.testing.assert_allclose(model(x)[0], rows(x), rtol=1e-5)
    with pytest.raises(InputError, match=r"found shape \[9,4\], expected \[3,4\] or \[N,4\] with N 1\.\.8"):
        model(numbers(9, 4))


@pytest.mark.parametrize("path", [FIXED, RANGE], ids=lambda path: path.stem)
def test_written_again_it_gives_the_same_bits(path: Path, tmp_path: Path) -> None:
    artefact = load(path)
    content = to_bytes(artefact)
    assert HEADER.unpack_from(content)[1] == FORMAT and read(content).summary() == artefact.summary()
    (tmp_path / "again").write_bytes(content)
    old, new = ngraph_mxnet.compile(path), ngraph_mxnet.compile(tmp_path / "again")
    shapes = [(1, 3, 6, 6), (2, 3, 6, 6)] if path == FIXED else [(count, 4) for count in (1, 3, 5)]
    for shape in shapes:
        np.testing.assert_array_equal(old(numbers(*shape))[0], new(numbers(*shape))[0])


def told(path: Path) -> dict[str, Any]:
    from ngraph_mxnet.tools.cli.artefact import described

    found = described(load(path).summary(), path, path.stat().st_size)
    assert json.loads(json.dumps(found)) == found
    return found


def test_it_is_described() -> None:
    fixed, ranged = told(FIXED), told(RANGE)
    assert (fixed["made_by"], fixed["metadata"], fixed["references"]) == ("ngraph_mxnet 0.2.0", {"key": "value"}, 2)
    figures = [{name: one[name] for name in ("shapes", "instructions", "levels", "arena_bytes", "constant_bytes")}
               for one in fixed["programs"]]
    native = _core.Artefact(str(FIXED))
    for number, one in enumerate(figures):
        levels, arena_bytes, constants = native.bind([(number + 1, 3, 6, 6)], 1).program.listed()
        assert one == {"shapes": number, "instructions": sum(map(len, levels)), "levels": len(levels),
                       "arena_bytes": arena_bytes, "constant_bytes": sum(array.nbytes for array in constants)}
    (one,) = ranged["ranges"]
    assert (one["range"], one["inputs"], one["symbols"]) == (0, {"x": "f32[N,4]"}, {"N": "1..8"})
    assert [each["guards"] for each in one["programs"]] == [["N - 1 != 0"], ["N - 1 == 0"]]
    assert [each["inputs"] for each in ranged["programs"]] == [{"x": "f32[3,4]"}]
    shown = CliRunner().invoke(main, ["show", str(RANGE)])
    assert shown.exit_code == 0 and "f32[N,4]" in shown.output and "f32[3,4]" in shown.output


def test_levels_stay_as_they_were() -> None:
    for native in (_core.Artefact(str(FIXED)).bind([(1, 3, 6, 6)], 1).program, bound(load(FIXED).sets[0])):
        levels, _, _ = native.listed()
        assert [[kernel for kernel, *_ in level] for level in levels] == LEVELS


LEVELS = [["ng_copy_4__baseline", "ng_clamp__baseline"], ["ng_contraction_k1_n16__baseline"],
          ["ng_avg_pool_blocked__baseline"], ["ng_copy_4__baseline"]]
