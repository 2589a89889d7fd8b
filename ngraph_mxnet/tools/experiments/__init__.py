"""Runs of benchmarks and trainings: what was measured, with what it depends on, in a store that can be compared."""
