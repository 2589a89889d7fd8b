"""What a target says of each node, the regions that result, and their report."""
