"""Programs as people read them: listings, tables of kernels, and profiles."""
