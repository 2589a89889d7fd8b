"""The backend's name, and the environment variable that names it."""

VARIABLE = "MXNET_SUBGRAPH_BACKEND"
BACKEND = "NGRAPH"

MXNET_BACKENDS = ("NONE", "MKLDNN", "MKLDNN_QUANTIZE", "default", "default_v2")
"""What the variable may name without us, in the stock wheel."""
