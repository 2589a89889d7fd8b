"""The ops, one family a module; importing this registers them all."""

from ngraph_mxnet.ops import constant  # noqa: F401
