"""The backend that defines what a graph computes: it runs the ops' references one by one."""
