"""Compiled graphs of a target as plain data: the same bytes in memory, in the cache on disk and in files."""

from ngraph_mxnet.package.graphs import decode_graph, decode_module, encode_graph
from ngraph_mxnet.package.pack import content_key
from ngraph_mxnet.package.package import Package, is_package

__all__ = ["Package", "content_key", "decode_graph", "decode_module", "encode_graph", "is_package"]
