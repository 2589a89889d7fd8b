"""How MXNet's binds, executors and Gluon's calls reach the compiler: activation, what is put around MXNet's
functions, and what happens when something fails.
"""

import mxnet  # noqa: F401  # first: its import ends with the activation, which must find no module of ours half imported
