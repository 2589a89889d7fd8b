"""The commands of `ngraph-mxnet`: `commands` has all and those about the package, `models` those about models."""
