"""Compiling a graph and running it: the contracts that every backend keeps."""
