"""The errors that this package raises on purpose.

Each message says where (node and framework name), what was found, what was expected and what to do.
"""

from __future__ import annotations


class NGraphError(Exception):
    """Base of all errors of this package."""


class TypeRuleError(NGraphError):
    """Operand types or attributes do not fit an op."""


class GraphError(NGraphError):
    """A graph is malformed: found by the verifier or the parser."""


class UnsupportedError(NGraphError):
    """A valid construct that this package or the chosen backend does not support; the text is the reason."""


class ConfigError(NGraphError):
    """An environment variable or an option has a value that is not allowed."""


class ModelError(NGraphError):
    """A framework's model file is corrupt or inconsistent."""
