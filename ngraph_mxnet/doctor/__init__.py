"""`ngraph-mxnet doctor`: whether an installation works on this machine, and what a bug report has to tell of both."""
