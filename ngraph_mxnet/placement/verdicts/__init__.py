"""The verdict of a target on each node, the regions that result, and their report."""
