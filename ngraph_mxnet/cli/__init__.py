"""The commands of `python -m ngraph_mxnet`: `models` about models, `inspection` about the package itself."""
