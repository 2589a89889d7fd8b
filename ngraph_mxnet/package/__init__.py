"""Compiled graphs of a target as plain data: the same bytes in memory, in the cache on disk and in files."""

from ngraph_mxnet.package.package import Package, content_key, decode_graph, decode_module, encode_graph, is_package

__all__ = ["Package", "content_key", "decode_graph", "decode_module", "encode_graph", "is_package"]
