"""What a target made of graphs, as plain data: in memory, in the cache on disk and in files, the same bytes."""

from ngraph_mxnet.package.graphs import decode_graph, decode_module, encode_graph
from ngraph_mxnet.package.pack import content_key
from ngraph_mxnet.package.package import Package, is_package

__all__ = ["Package", "content_key", "decode_graph", "decode_module", "encode_graph", "is_package"]
