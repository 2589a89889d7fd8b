"""One node of any operator, with any of its modes; sometimes something behind it."""

from __future__ import annotations

from fuzzing.values.closeness import EXACT
from fuzzing.values.drawing import Draw, chance, pick
from fuzzing.values.nets import Net
from fuzzing.values.operators import OFTEN, OPERATORS, SINCE
from fuzzing.values.trials import Trial, family


@family("one operator", weight=16)
def one_operator(draw: Draw) -> Trial:
    op = pick(draw, *sorted(OFTEN))
    net = Net(draw, SINCE.get(op))
    values, closeness = OPERATORS[op](net, op)
    outputs = list(values)
    if chance(draw, 4) and closeness is not EXACT:
        last = outputs[0]
        if last.dtype == "float32":
            outputs.append(net.node(pick(draw, "Relu", "Sigmoid", "Neg"), last))
    return net.trial(outputs, closeness)
