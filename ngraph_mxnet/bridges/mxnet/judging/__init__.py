"""Which nodes of a symbol are taken and why the others are not; the regions that result, and the symbol that has
them.
"""
