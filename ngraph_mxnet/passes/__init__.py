"""Graph passes: each rewrites a graph in place and preserves what the graph computes."""

from ngraph_mxnet.passes.base import FixedPoint, Pass, PassManager, PassRecord, Report
from ngraph_mxnet.passes.clusters import split_prepare
from ngraph_mxnet.passes.pipelines import optimize, shared_passes

__all__ = ["FixedPoint", "Pass", "PassManager", "PassRecord", "Report", "optimize", "shared_passes", "split_prepare"]
