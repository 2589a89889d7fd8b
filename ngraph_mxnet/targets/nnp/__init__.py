"""A simulated Intel Nervana NNP: see docs/nnp.md."""
