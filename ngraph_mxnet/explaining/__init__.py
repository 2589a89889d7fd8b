"""Explanations of what would be compiled of a model of any kind, and why the rest would not be."""
