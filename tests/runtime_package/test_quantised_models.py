"""Files that `ngraph_mxnet.quantize` writes, run by the real library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

mx = pytest.importorskip("mxnet", reason="the other Pythons have the runtime alone")
ngraph_mxnet = pytest.importorskip("ngraph_mxnet", reason="the other Pythons have the runtime alone")
from mxnet.gluon.model_zoo import vision  # noqa: E402

import ngraph_runtime  # noqa: E402
from ngraph_mxnet import _core  # noqa: E402
from ngraph_mxnet.targets.cpu.machine.isa import supported  # noqa: E402
from ngraph_runtime.reference import verify  # noqa: E402

FEATURES = _core.cpu_features()
ISAS = [isa for isa in supported(FEATURES) if isa != "baseline"]
IMAGES = np.random.default_rng(2).standard_normal((4, 3, 64, 64)).astype(np.float32)


def small_resnet() -> mx.gluon.HybridBlock:
    """ResNet-18 with one block of each size, where it has two."""
    mx.random.seed(1)
    block = vision.ResNetV1(vision.BasicBlockV1, [1, 1, 1, 1], [64, 64, 128, 256, 512], classes=20)
    block.initialize(mx.init.Xavier())
    return block


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory):
    """The model and its file."""
    block = small_resnet()
    found = ngraph_mxnet.quantize(block, IMAGES, method="minmax", only_faster=False)
    path = tmp_path_factory.mktemp("quantised") / "model.ngraph"
    found.save(path, with_references=True)
    return found, path


@pytest.mark.skipif(not ISAS, reason="the CPU has no AVX2")
@pytest.mark.parametrize("isa", ISAS)
def test_the_same_bits(isa: str, quantised, real_library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where AVX-512 comes without VNNI, those of AVX2."""
    found, path = quantised
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)
    loaded = ngraph_runtime.load(path)
    expected = isa if isa != "avx512" or FEATURES["avx512vnni"] else "avx2"
    assert (loaded.instruction_set, loaded.precision) == (expected, "int8")
    wanted = found.compile(isa=expected)(IMAGES[:1])[0]
    for threads in (1, 2, None):
        np.testing.assert_array_equal(loaded.run([IMAGES[:1]], threads=threads)[0], wanted, strict=True)


@pytest.mark.skipif(not ISAS, reason="the CPU has no AVX2")
@pytest.mark.parametrize("isa", ISAS)
def test_it_verifies(isa: str, quantised, real_library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where sums are short and weights coarser than where the references were made."""
    monkeypatch.setenv("NGRAPH_CPU_ISA", isa)
    comparisons = verify(ngraph_runtime.load(quantised[1]))
    assert comparisons and all(one.matches for one in comparisons)


def test_the_file_is_for_avx2_and_better(quantised, real_library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_CPU_ISA", "baseline")
    with pytest.raises(ngraph_runtime.NGraphRuntimeError, match="no instructions for baseline"):
        ngraph_runtime.load(quantised[1])


def test_the_size(quantised, tmp_path: Path) -> None:
    """In float32 a ResNet has Winograd's weights, too."""
    ngraph_mxnet.export(small_resnet(), tmp_path / "float.ngraph", data=(1, 3, 64, 64), isas=["avx2"])
    quantised[0].save(tmp_path / "int8.ngraph", isas=["avx2"])
    floats, bytes_ = ((tmp_path / f"{name}.ngraph").stat().st_size for name in ("float", "int8"))
    assert bytes_ < 0.27 * floats
