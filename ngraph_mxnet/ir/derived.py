"""The one rule for what depends on weights only: it is computed once for each set of them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from ngraph_mxnet.ir.graph import Node, Value
from ngraph_mxnet.ir.module import Flow, Shared
from ngraph_mxnet.ir.roles import Role


class Changes(IntEnum):
    """When a value changes; what is computed of several changes as often as the one that changes most."""

    NEVER = 0
    WITH_WEIGHTS = 1
    WITH_CALLS = 2


def _given(role: Role) -> Changes:
    return Changes.WITH_WEIGHTS if role is Role.WEIGHT else Changes.WITH_CALLS


def _most(found: Iterable[Changes]) -> Changes:
    return max(found, default=Changes.NEVER)


class Derivation:
    """When values of graphs change. What was found out is remembered: a node's operands may be replaced by others that
    change as often, or less often, which is then not noticed."""

    def __init__(self) -> None:
        self._known: dict[Value, Changes] = {}

    def of(self, value: Value) -> Changes:
        known = self._known
        if value in known:
            return known[value]
        stack = [value]
        while stack:
            top = stack[-1]
            if top in known:
                stack.pop()
            elif top.type.is_symbolic:  # its size is not known before a call
                known[top] = Changes.WITH_CALLS
            elif top.node is None:
                known[top] = _given(top.role)
            else:
                unknown = [operand for operand in top.node.inputs if operand not in known]
                if unknown:
                    stack.extend(unknown)
                else:
                    known[top] = _most([known[operand] for operand in top.node.inputs])
        return known[value]

    def of_node(self, node: Node) -> Changes:
        """When what it computes changes."""
        if any(value.type.is_symbolic for value in node.outputs):
            return Changes.WITH_CALLS
        return _most([self.of(operand) for operand in node.inputs])


def changes_of(flow: Flow) -> dict[Shared, Changes]:
    """When each shared value changes."""
    found = {value: _given(value.role) for value in flow.inputs}
    for step in flow.steps:
        found.update(dict.fromkeys(step.outputs, _most(found[value] for value in step.inputs)))
    return found
