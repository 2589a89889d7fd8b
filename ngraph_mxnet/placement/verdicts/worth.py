"""Which graphs compute too little to be a region."""

from __future__ import annotations

from ngraph_mxnet.ir.cost import Cost, graph_cost
from ngraph_mxnet.ir.graph import Graph

#: A lone operator that computes less is faster in MXNet: a region's call costs 2 to 5 us more than an operator's, a
#: thousand exponentials take MXNet 2 us longer. Two operators in one region save as much as the call costs.
LEAST_ALONE = 1024


def too_small_alone(graph: Graph) -> str | None:
    """Why a lone operator between MXNet's, lowered to `graph`, is no region of its own; None when it is, and when it
    computes nothing, of which `not_worth_it` tells."""
    total = graph_cost(graph)
    count = total.macs + total.operations
    if not 0 < count < LEAST_ALONE:
        return None
    return (f"alone between operators of MXNet it would compute {count} elements, and below {LEAST_ALONE} a call costs "
            "more than it saves")  # fmt: skip


def not_worth_it(total: Cost) -> str | None:
    """Why a backend should not take a graph of this cost although it can; None when it should."""
    if total.macs or total.operations:
        return None
    return "it only moves elements and computes nothing, so that a call would cost more than it saves"
