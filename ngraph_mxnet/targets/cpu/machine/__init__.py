"""What this CPU has and can do: its instruction sets, its peak, its OpenMP, and what is measured once on it."""
