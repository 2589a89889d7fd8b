"""MXNet's side: the only package that imports mxnet. Import nothing here: see `ngraph_mxnet_autoload`."""
