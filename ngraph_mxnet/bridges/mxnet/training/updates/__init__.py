"""Compiled updates: what an optimizer does to its parameters in a step. The modules are formulae, MXNet's optimizers,
and programs of both."""
