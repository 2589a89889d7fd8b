"""What `fuzz_values.py` is made of.

A family draws trials: a model, the arrays of its calls, and a setup. `kinds` runs one on us, on the interpreter and by
a judge; `closeness` says how near results must be, `interpretation` how far rounding moves them. `worker` is the
process that tries them, `shrinking` makes what failed small, `findings` keeps it, `departures` knows where a judge is
wrong, `coverage` what ran, and `sizes` the thresholds of the planner.
"""
