"""Recorded calls of blocks that can't be trained as a whole: in parts, MXNet's and ours by turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mxnet.gluon.block import HybridBlock
from mxnet.ndarray import NDArray

from ngraph_mxnet.bridges.mxnet.judging import partition_log
from ngraph_mxnet.bridges.mxnet.symbols.sparse_storage import why_left
from ngraph_mxnet.errors import UnsupportedError


class PartedBlock:
    """The calls of a block with inputs of these shapes and types and these arrays of parameters.

    Args:
        trained: the names of parameters and inputs that gradients may be wanted of.
        left: parameters whose readers are MXNet's, with the reason.
        whole: why the block is not ours as a whole.

    Raises:
        UnsupportedError: no part of it is worth it; the text says why.
    """

    def __init__(self, block: HybridBlock, inputs: Mapping[str, NDArray], parameters: Mapping[str, NDArray],
                 trained: Sequence[str], left: Mapping[str, str], whole: str) -> None:
        from ngraph_mxnet.bridges.mxnet.training.parts import PartedCalls, part

        symbol = block._cached_graph[1]
        types = {name: (array.shape, array.dtype) for name, array in {**inputs, **parameters}.items()}
        try:
            parted = part(symbol, types, trained, left)
        except UnsupportedError as error:
            raise UnsupportedError(f"{whole}; {error}") from None
        partition_log.add(parted.partition)
        self.calls = PartedCalls(parted, parameters)
        self.saved_bytes = sum(one.program.saved_bytes for one in parted.trained)

    def run(self, inputs: Mapping[str, NDArray]) -> list[NDArray]:
        """The outputs, recorded."""
        return self.calls.run(inputs)


def sparse_gradients(block: HybridBlock) -> dict[str, str]:
    """The parameters whose gradients are sparse, by the graph's names, and what is said of their readers."""
    names = block._cached_graph[1].list_inputs()
    return why_left(name for name, (is_input, found) in zip(names, block._cached_op_args, strict=True)
                    if not is_input and found._grad_stype != "default")
