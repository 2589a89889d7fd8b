"""Expressions of IR ops that more than one bridge emits."""
