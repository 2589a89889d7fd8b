"""Post-training quantisation, the half that no target is in: what values a model has, the ranges and scales chosen from
them, corrections of weights and biases, and which layers stay in float (docs/quantisation.md)."""
