"""`ngraph_mxnet.verify`: a model's results compared with those of a reference, and the node where they diverge."""
