"""What an optimizer does to its parameters in a step, compiled: formulae, MXNet's optimizers, and programs of both."""
