"""The commands of `ngraph-mxnet`: `models` and `show` about models, `inspection` and `doctor` about the package."""
