"""All that happens inside a running MXNet, and the only room that imports mxnet.

Import nothing here: see `ngraph_mxnet_autoload`.
"""
