"""Files of models with products in 8 bits: what each instruction set computes, and how large they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from artefact_runs import isas_here, kernels, of, run
from mxnet.gluon import nn

import ngraph_mxnet
from ngraph_mxnet import _core
from ngraph_mxnet.base.errors import ConfigError, PackageError
from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.program.artefact import load
from ngraph_mxnet.program.backend import unlike
from ngraph_mxnet.quantisation.apply import Recipe, Scale
from ngraph_mxnet.targets.cpu.machine.isa import available

SHAPE = (2, 8, 12, 12)
RECIPE = Recipe({f"mx:{name}_fwd {op}": Scale(0.04, 0 if name == "conv1" else 128)
                 for name, op in (("conv0", "Convolution"), ("conv1", "Convolution"), ("dense0", "FullyConnected"))})
INT8: dict[str, Any] = {"precision": "int8", "recipe": RECIPE}


@pytest.fixture(scope="module")
def block() -> mx.gluon.HybridBlock:
    mx.random.seed(1)
    net = nn.HybridSequential(prefix="")
    net.add(nn.Conv2D(64, 3, padding=1, prefix="conv0_"), nn.BatchNorm(), nn.Activation("relu"),
            nn.Conv2D(128, 3, padding=1, prefix="conv1_"), nn.Activation("relu"), nn.GlobalAvgPool2D(),
            nn.Dense(512, prefix="dense0_"))
    net.initialize(mx.init.Xavier())
    return net


def data() -> np.ndarray:
    return np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)


def test_each_instruction_set_gives_what_it_gives_compiled(block: mx.gluon.HybridBlock, tmp_path: Path) -> None:
    path = tmp_path / "net.ngraph"
    every = ["amx", "avx512", "avx_vnni", "avx2", "baseline"]
    ngraph_mxnet.export(block, path, data=SHAPE, isas=every, **INT8)
    found = load(path)
    assert found.meta.precision == "int8"
    names = {one.isa: kernels(one) for one in found.sets}
    endings = ("_u8_amx__avx512", "_u8__avx512", "_u8__avx2", "_u8_short__avx2", "_u8_wide__baseline")
    for isa, ending in zip(every, endings, strict=True):
        products = {name for name in names[isa] if "contraction" in name}
        rest = "_u8__avx512" if isa == "amx" else ending  # tiles are not for every size
        assert any(name.endswith(ending) for name in products)
        assert all(name.endswith((ending, rest)) for name in products)
    graph, weights = model_of(block).graph({"data": SHAPE}, "CPU")()
    wanted = ngraph_mxnet.compile(graph, "CPU", weights=weights)(data())[0]
    for isa in available(_core.cpu_features()):
        result = run(of(found, isa), [data()])[0]
        compiled = ngraph_mxnet.compile(graph, "CPU", weights=weights, isa=isa, **INT8)(data())[0]
        np.testing.assert_array_equal(result, compiled)
        assert 0 < np.abs(result - wanted).max() < 0.1 * np.abs(wanted).max()


def test_weights_take_a_byte(block: mx.gluon.HybridBlock, tmp_path: Path) -> None:
    """Of each instruction set, of which the baseline's would take two."""
    sizes = {}
    for name, options in (("f32", {"precision": "f32"}), ("int8", INT8)):
        ngraph_mxnet.export(block, tmp_path / name, data=SHAPE, **options)
        sizes[name] = {one.isa: one.programs[0].constant_bytes for one in load(tmp_path / name).summary().sets}
    assert set(sizes["int8"]) == {"avx512", "avx2"}
    assert all(sizes["int8"][isa] < 0.3 * sizes["f32"][isa] for isa in sizes["int8"])


def test_with_references(block: mx.gluon.HybridBlock, tmp_path: Path) -> None:
    path = tmp_path / "net.ngraph"
    ngraph_mxnet.export(block, path, data=SHAPE, with_references=True, **INT8)
    (reference,) = load(path).references
    result = run(of(load(path), isas_here()[0]), reference.inputs)[0]
    np.testing.assert_array_equal(result, reference.outputs[0])


def test_of_ranges(block: mx.gluon.HybridBlock, tmp_path: Path) -> None:
    path = tmp_path / "net.ngraph"
    ngraph_mxnet.export(block, path, data=("1..4", *SHAPE[1:]), **INT8)
    summary = load(path).summary()
    assert {one.isa for one in summary.sets} == {"avx512", "avx2"} and summary.meta.precision == "int8"


def test_without_a_recipe_it_is_no_file_of_int8(block: mx.gluon.HybridBlock, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an option or the environment asks for it."""
    with pytest.raises(ConfigError, match="int8 without a recipe"):
        ngraph_mxnet.export(block, tmp_path / "net.ngraph", data=SHAPE, precision="int8")
    monkeypatch.setenv("NGRAPH_PRECISION", "int8")
    with pytest.raises(ConfigError, match="int8 without a recipe"):
        ngraph_mxnet.export(block, tmp_path / "net.ngraph", data=SHAPE)
    assert not list(tmp_path.iterdir())


def test_an_executable_is_for_its_instruction_set(block: mx.gluon.HybridBlock, tmp_path: Path) -> None:
    """Others have other weights, which are no longer there."""
    graph, weights = model_of(block).graph({"data": SHAPE}, "CPU")()
    compiled = ngraph_mxnet.compile(graph, "CPU", weights=weights, **INT8)
    best = available(_core.cpu_features())[0]
    with pytest.raises(PackageError, match=f"quantised for {best}: save it for this instruction set alone"):
        compiled.save(tmp_path / "net.ngraph")
    compiled.save(tmp_path / "net.ngraph", isas=[best])
    (program,) = load(tmp_path / "net.ngraph").sets
    np.testing.assert_array_equal(run(program, [data()])[0], compiled(data())[0])


def test_a_cpu_without_vnni_takes_the_program_for_avx2(block: mx.gluon.HybridBlock, tmp_path: Path) -> None:
    ngraph_mxnet.export(block, tmp_path / "net.ngraph", data=SHAPE, **INT8)
    has_vnni = _core.cpu_features()["avx512vnni"]
    assert _core.Artefact(str(tmp_path / "net.ngraph")).instruction_set == (
        isas_here()[0] if has_vnni or isas_here()[0] != "avx512" else "avx2")


@pytest.mark.skipif("avx_vnni" not in available(_core.cpu_features()), reason="the CPU has no AVX-VNNI")
def test_which_program_a_cpu_with_avx_vnni_takes(block: mx.gluon.HybridBlock, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """The one for it, if there is one, else that for avx2."""
    for isas, wanted, taken in ((["avx_vnni", "avx2"], "avx_vnni", "avx_vnni"), (["avx2"], "avx_vnni", "avx2"),
                                (["avx_vnni", "avx2"], "avx2", "avx2")):
        ngraph_mxnet.export(block, tmp_path / "net.ngraph", data=SHAPE, isas=isas, **INT8)
        monkeypatch.setenv("NGRAPH_CPU_ISA", wanted)
        assert _core.Artefact(str(tmp_path / "net.ngraph")).instruction_set == taken
        assert unlike("CPU", INT8, taken, "int8") is None
    assert "no instructions for avx2" in str(unlike("CPU", INT8, "avx_vnni", "int8"))


@pytest.mark.parametrize(("options", "precision", "reason"), [
    ({"precision": "int8"}, "int8", None), (INT8, "int8", None),
    ({"precision": "f32"}, "int8", "computes in int8, and f32 is asked for"),
    (INT8, "f32", "computes in f32, and int8 is asked for"), ({"precision": "int8"}, "f32", None),
    ({"precision": "bf16"}, "int8", "computes in int8, and bf16 is asked for"),
])
def test_which_file_is_taken(options: dict[str, Any], precision: str, reason: str | None) -> None:
    found = unlike("CPU", options, isas_here()[0], precision)
    assert found is None if reason is None else reason in str(found)
