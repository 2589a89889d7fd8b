"""Reading a model: from a path, bytes or a ModelProto to one that passed the checks that need no type."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import inliner, version_converter

from ngraph_mxnet.bridges.onnx.budget import require_inlinable
from ngraph_mxnet.bridges.onnx.names import subgraphs
from ngraph_mxnet.errors import ModelError, UnsupportedError

Source = str | os.PathLike[str] | bytes | onnx.ModelProto

OLDEST, NEWEST = 6, onnx.defs.onnx_opset_version()
"""The versions of the default operator set that are read as they are."""

_DEFAULT = ("", "ai.onnx")


@dataclass(frozen=True)
class Model:
    """`proto` has no functions of its own left; `opsets` are its versions by domain, the default domain being ''."""

    proto: onnx.ModelProto
    opsets: dict[str, int]
    folder: Path | None
    """Where external data lie."""

    @property
    def name(self) -> str:
        return self.proto.graph.name or "main"

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The graph's inputs without those that are initialisers (as files of before IR version 4 list them)."""
        held = {tensor.name for tensor in self.proto.graph.initializer}
        return [value for value in self.proto.graph.input if value.name not in held]


def read_model(source: Source) -> Model:
    """The model, its functions inlined.

    Raises:
        ModelError: there is no such file, it is no ONNX model, or it is damaged.
        UnsupportedError: it was made for operators that are too old or too new; its functions come to too many nodes.
    """
    folder, what = None, "the model"
    if isinstance(source, onnx.ModelProto):
        proto = source
    else:
        if not isinstance(source, bytes):
            path = Path(source)
            what, folder = str(path), path.parent
            try:
                source = path.read_bytes()
            except OSError as error:
                raise ModelError(f"{path}: {error.strerror or error}") from None
        try:
            proto = onnx.load_model_from_string(source)
        except DecodeError:
            raise ModelError(f"{what} is no ONNX model, or was cut off: its {len(source)} bytes can't be "
                             "parsed") from None
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError(f"{what} has no graph with outputs: it was cut off, or is no ONNX model")
    _require_text(proto)
    require_inlinable(proto)
    proto = _converted(proto)
    opsets = _opsets(proto)
    if proto.functions:
        try:
            proto = inliner.inline_local_functions(proto)
        except Exception as error:  # the inliner raises what its C++ throws
            raise ModelError(f"the model's functions can't be inlined: {error}") from None
        opsets = _opsets(proto)
    return Model(proto, opsets, folder)


def _require_text(proto: onnx.ModelProto) -> None:
    """protobuf gives bytes for names that are no UTF-8, which nobody expects."""
    bodies = (name for function in proto.functions for name in (
        function.name, function.domain, *function.input, *function.output, *_node_names(function.node)))
    wrong = next((name for name in (*_names(proto.graph), *bodies) if not isinstance(name, str)), None)
    if wrong is not None:
        raise ModelError(f"the name {bytes(wrong)!r} is no UTF-8; the file is damaged")


def _names(graph: onnx.GraphProto) -> Iterator[object]:
    yield graph.name
    yield from (part.name for part in (*graph.input, *graph.output, *graph.initializer))
    yield from _node_names(graph.node)


def _node_names(nodes: Iterable[onnx.NodeProto]) -> Iterator[object]:
    """Those of subgraphs, too."""
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
        for graph in subgraphs(node):
            yield from _names(graph)


def _converted(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model of older operators with those of `OLDEST`, as far as the installed onnx converts them."""
    versions = [entry.version for entry in proto.opset_import if entry.domain in _DEFAULT]
    if not versions or not 0 < versions[0] < OLDEST:
        return proto
    try:
        return version_converter.convert_version(proto, OLDEST)
    except Exception as error:  # its C++ throws what it likes
        raise UnsupportedError(f"operator set version {versions[0]}, expected {OLDEST} to {NEWEST}, and "
                               f"onnx.version_converter does not make it newer: {error}") from None


def _opsets(proto: onnx.ModelProto) -> dict[str, int]:
    opsets = {"" if entry.domain in _DEFAULT else entry.domain: entry.version for entry in proto.opset_import}
    version = opsets.get("")
    if version is None:
        if any(node.domain in _DEFAULT for node in proto.graph.node):
            raise ModelError("the model does not say which version of the default operator set it uses")
        return opsets
    if not OLDEST <= version <= NEWEST:
        hint = "a newer onnx package may know it" if version > NEWEST else "there is none"
        raise UnsupportedError(f"operator set version {version}, expected {OLDEST} to {NEWEST}: {hint}")
    return opsets
