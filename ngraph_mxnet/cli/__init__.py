"""The commands of `python -m ngraph_mxnet`: `models` and `show` about models, `inspection` about the package itself."""
