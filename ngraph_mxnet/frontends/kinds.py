"""The kind of a given model: an object of this package or of a framework, a text, or a file of some kind."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Any

from ngraph_mxnet.base.errors import ModelError, unreadable
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.program.artefact import is_artefact
from ngraph_mxnet.program.package import Package, is_package

SYMBOL_FILE, IR_FILE = "-symbol.json", ".ngraph"
"""How the names of files usually end; that of IR is also the ending of compiled files."""

_ONNX_TYPE = "ModelProto"


class Kind(Enum):
    """The value is what messages call one."""

    GRAPH = "graph"
    SYMBOL = "symbol"
    BLOCK = "Gluon block"
    ONNX = "ONNX model"
    COMPILED = "compiled file"
    PACKAGE = "package"


def kind_of(model: Any) -> tuple[Kind, Any]:
    """The kind, and the model: of IR's text or file the graph, of a package's file the package, all else as it was.

    What a file holds is told by its beginning where it has one of its own, by its name else; what is left is taken for
    an ONNX model.

    Raises:
        ModelError: it is nothing that can be compiled; the text says what was found and what is expected.
        GraphError, PackageError: it is IR, or a package's file, and malformed.
    """
    if isinstance(model, Graph):
        return Kind.GRAPH, model
    if isinstance(model, Package):
        return Kind.PACKAGE, model
    if isinstance(model, bytes) or (type(model).__name__ == _ONNX_TYPE and hasattr(model, "graph")):
        return Kind.ONNX, model
    if hasattr(model, "tojson") and hasattr(model, "list_arguments"):
        return Kind.SYMBOL, model
    if hasattr(model, "collect_params") and callable(model):
        return Kind.BLOCK, model
    if isinstance(model, str) and model.lstrip().startswith("graph @"):
        return _parsed(model)
    if isinstance(model, (str, os.PathLike)):
        return _of_file(model)
    name = f"{type(model).__module__}.{type(model).__qualname__}".removeprefix("builtins.")
    if hasattr(model, "inputs") and hasattr(model, "outputs") and callable(model):
        raise ModelError(f"found a {name}, which is compiled already: call it with arrays")
    raise ModelError(f"found a {name}, expected a Graph or its text, an MXNet symbol "
                     "or Gluon block, an ONNX model (path, bytes or onnx.ModelProto), a Package, or the path of a file "
                     f"MODEL{SYMBOL_FILE}, MODEL.onnx or MODEL{IR_FILE}")


def is_symbol_file(path: str | os.PathLike[str]) -> bool:
    """By the name, whether or not there is such a file."""
    return os.fspath(path).endswith(".json")


def _of_file(model: str | os.PathLike[str]) -> tuple[Kind, Any]:
    path = Path(model)
    if is_symbol_file(model):
        return Kind.SYMBOL, model
    try:
        if is_artefact(path):
            return Kind.COMPILED, model
        if is_package(path):
            return Kind.PACKAGE, Package.load(path)
        if path.suffix == IR_FILE:
            return _parsed(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    return Kind.ONNX, model


def _parsed(text: str) -> tuple[Kind, Graph]:
    from ngraph_mxnet.ir.parser import parse_graph

    return Kind.GRAPH, parse_graph(text)
