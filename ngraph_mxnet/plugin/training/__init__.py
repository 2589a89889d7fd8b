"""MXNet's graphs as they train: what layers compute of a batch, and MXNet's own meaning of gradients."""

import mxnet  # noqa: F401  # first: its import ends with the activation, which must find no module of ours half imported
