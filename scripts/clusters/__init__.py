"""Studies of simulated clusters, for scripts/simulate_cluster.py."""
