"""The real library, where NGRAPH_RUNTIME_LIBRARY names one; NGRAPH_RUNTIME_MODEL names a model to run with it."""

from __future__ import annotations

import os

import pytest

import ngraph_runtime
from ngraph_runtime import ModelError
from ngraph_runtime.library import library
from ngraph_runtime.reference import references, verify


def test_it_has_the_interface(real_library):
    assert library().path == real_library and library().version()


def test_files_that_are_none_are_refused(real_library, tmp_path):
    with pytest.raises(ModelError, match=r"nowhere\.ngraph"):
        ngraph_runtime.load(tmp_path / "nowhere.ngraph")
    for number, content in enumerate((b"", b"ngraph", b"ngraph artefact\n", os.urandom(5000))):
        path = tmp_path / f"{number}.ngraph"
        path.write_bytes(content)
        with pytest.raises(ModelError, match=path.name):
            ngraph_runtime.load(path)


def test_a_model_computes_what_it_must(real_library):
    path = os.environ.get("NGRAPH_RUNTIME_MODEL")
    if not path:
        pytest.skip("NGRAPH_RUNTIME_MODEL names no model")
    model = ngraph_runtime.load(path)
    assert model.inputs and model.outputs and model.instruction_set in ("baseline", "avx2", "avx_vnni", "avx512", "amx")
    assert references(model), "the model holds no references"
    assert [one for one in verify(model) if not one.matches] == []
    assert [one for one in verify(model, threads=1) if not one.matches] == []
