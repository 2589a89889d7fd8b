"""MXNet's graphs as they train: what layers compute of a batch, and MXNet's own meaning of gradients."""
