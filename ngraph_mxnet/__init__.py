"""A graph compiler for MXNet models: see README.md.

Where MXNet is installed, importing this package makes `import mxnet` work on current NumPy and registers the backend
`NGRAPH`. Everything else is loaded on first use, so that the import costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.base.installation import has_mxnet, require_main_interpreter

if TYPE_CHECKING:
    from ngraph_mxnet.api import compile as compile
    from ngraph_mxnet.api import explain as explain
    from ngraph_mxnet.api import explain_shapes as explain_shapes
    from ngraph_mxnet.api import explain_training as explain_training
    from ngraph_mxnet.api import export as export
    from ngraph_mxnet.api import to_onnx as to_onnx
    from ngraph_mxnet.base.errors import NGraphError as NGraphError
    from ngraph_mxnet.base.version import __version__ as __version__
    from ngraph_mxnet.ir import Builder as Builder
    from ngraph_mxnet.ir import Graph as Graph
    from ngraph_mxnet.ir import parse_graph as parse_graph
    from ngraph_mxnet.ir import print_graph as print_graph
    from ngraph_mxnet.plugin.fake_quantize import fake_quantize as fake_quantize
    from ngraph_mxnet.plugin.report import report as report
    from ngraph_mxnet.program.audit import audit as audit
    from ngraph_mxnet.program.backend import backends as backends
    from ngraph_mxnet.program.batching import Batcher as Batcher
    from ngraph_mxnet.quantisation.session.quantized import quantize as quantize
    from ngraph_mxnet.tools.verifying.verified import verify as verify

_LAZY = {
    "Builder": "ngraph_mxnet.ir",
    "Graph": "ngraph_mxnet.ir",
    "parse_graph": "ngraph_mxnet.ir",
    "print_graph": "ngraph_mxnet.ir",
    "compile": "ngraph_mxnet.api",
    "Batcher": "ngraph_mxnet.program.batching",
    "audit": "ngraph_mxnet.program.audit",
    "backends": "ngraph_mxnet.program.backend",
    "export": "ngraph_mxnet.api",
    "to_onnx": "ngraph_mxnet.api",
    "quantize": "ngraph_mxnet.quantisation.session.quantized",
    "explain": "ngraph_mxnet.api",
    "explain_shapes": "ngraph_mxnet.api",
    "explain_training": "ngraph_mxnet.api",
    "fake_quantize": "ngraph_mxnet.plugin.fake_quantize",
    "report": "ngraph_mxnet.plugin.report",
    "verify": "ngraph_mxnet.tools.verifying.verified",
    "NGraphError": "ngraph_mxnet.base.errors",
    "__version__": "ngraph_mxnet.base.version",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


def _activate() -> None:
    """Leave `sys.meta_path` alone where there is no MXNet to wait for: graphs and ONNX models need none."""
    if has_mxnet():
        import ngraph_mxnet_autoload

        ngraph_mxnet_autoload.activate()


require_main_interpreter()
_activate()
