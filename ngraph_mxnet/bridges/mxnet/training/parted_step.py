"""A training step of an executor whose symbol is not ours as a whole: its parts, recorded on MXNet's tape."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mxnet import autograd
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ngraph_mxnet.bridges.mxnet.symbols.aliases import canonical
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import Edge
from ngraph_mxnet.bridges.mxnet.training.judging import OWN_GRADIENT
from ngraph_mxnet.bridges.mxnet.training.parts import Parted, PartedCalls, part
from ngraph_mxnet.bridges.mxnet.training.step import head_of
from ngraph_mxnet.placement.verdicts.report import Partition

Arrays = Mapping[str, NDArray]


class PartedStep:
    """As `TrainingStep`.

    Attributes:
        outputs: the symbol's, new ones after each forward.

    Args:
        arrays: of the symbol's arguments and states, by name.
        gradients: those that are wanted, by the arguments' names, to be written.
        added: names of gradients that are added to what is there.

    Raises:
        UnsupportedError: no part of it is worth it; the text says why.
    """

    def __init__(self, symbol: Symbol, arrays: Arrays, gradients: Arrays, added: Collection[str] = ()) -> None:
        types = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        parted = part(symbol, types, list(gradients))
        self.partition: Partition = parted.partition
        # Views of their own: what is marked on the program's arrays is the program's.
        views = {name: array.detach() for name, array in arrays.items()}
        autograd.mark_variables([views[name] for name in gradients], list(gradients.values()),
                                ["add" if name in added else "write" for name in gradients])
        self._calls = PartedCalls(parted, views)
        self._on_tape = [number for number, head in enumerate(parted.graph.heads) if head in parted.active]
        self._needed = {number for number in self._on_tape if _reads_head(parted, parted.graph.heads[number])}
        self.outputs: list[NDArray] = []

    def forward(self) -> bool:
        """Always done."""
        self.outputs = []  # what they come from is let go of
        with autograd.record(train_mode=True):
            self.outputs = self._calls.run({})
        return True

    def backward(self, heads: Sequence[NDArray], is_train: bool = True) -> None:
        """After a forward; as `TrainingStep.backward`."""
        outputs = self.outputs
        with autograd.pause():
            given = [head_of(heads, number, outputs[number]).astype(outputs[number].dtype, copy=False)
                     if number in self._needed else None for number in self._on_tape]
        autograd.backward([self.outputs[number] for number in self._on_tape], given, retain_graph=True,
                          train_mode=is_train)


def _reads_head(parted: Parted, head: Edge) -> bool:
    """Whether the gradient of this output is read."""
    for one in parted.trained:
        if head in one.cut.outputs:
            return one.cut.outputs.index(head) in one.program.heads
    return canonical(parted.graph.nodes[head.node].op) not in OWN_GRADIENT
