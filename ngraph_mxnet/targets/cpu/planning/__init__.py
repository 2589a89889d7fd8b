"""Decisions before lowering: layouts, algorithms, memory, phases, precision, and the order of the nodes."""
