"""`ngraph_mxnet.quantize`: from a model and samples to a recipe that holds the metric and is faster."""
