"""MXNet's kvstore `dist_sync_ngraph`: data-parallel training over MPI."""

import mxnet  # noqa: F401  # first: its import ends with the activation, which must find no module of ours half imported
