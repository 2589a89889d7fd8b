"""Which nodes of a symbol are taken and why the others are not; the regions that result, and the symbol that has
them.
"""

import mxnet  # noqa: F401  # first: its import ends with the activation, which must find no module of ours half imported
