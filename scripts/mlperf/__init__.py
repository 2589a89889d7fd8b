"""What nnp_mlperf.py is made of."""
