"""Reverse-mode differentiation of graphs: `differentiate`, and an adjoint for each op."""

from ngraph_mxnet.autodiff import images, movement  # noqa: F401
from ngraph_mxnet.autodiff.reverse import Joint, differentiate, why_not
from ngraph_mxnet.autodiff.split import Split, split

__all__ = ["Joint", "Split", "differentiate", "split", "why_not"]
