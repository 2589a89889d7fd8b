"""The capabilities of this CPU: its instruction sets, its peak, its OpenMP, and what is measured once on it."""
