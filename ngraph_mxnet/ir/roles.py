"""What a value is to those who share it."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """Who brings a value, and how often it changes."""

    INPUT = "input"
    """The caller brings it with each call."""
    WEIGHT = "weight"
    """The caller brings it, and it seldom changes: what depends on weights only is derived once."""
    MADE = "made"
    """It is computed."""
