"""Symbols as MXNet writes them: their JSON, attributes, names, inputs and weights."""
