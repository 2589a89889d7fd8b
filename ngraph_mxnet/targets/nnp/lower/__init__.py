"""From the optimised graph to a Program: shards for engines, tiles for their memories, instructions."""
