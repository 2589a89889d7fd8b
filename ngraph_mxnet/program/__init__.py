"""Programs: what a backend compiles a graph to, its bytes in memory, in the cache and in files, and what runs it."""
