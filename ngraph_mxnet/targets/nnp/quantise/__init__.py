"""From float graphs to the NNP's integers: calibration, scales, and what overflows."""
