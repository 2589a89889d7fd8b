"""Compiled models behind model servers: docs/serving.md. Each server has an adapter, which loads models with `load`.
"""

from __future__ import annotations

from ngraph_runtime.serving.loading import load
from ngraph_runtime.serving.served import ServedModel

__all__ = ["ServedModel", "load"]
