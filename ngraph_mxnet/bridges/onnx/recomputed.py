"""What pieces of a model compute themselves instead of being given it."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from ngraph_mxnet.bridges.onnx.names import subgraphs

_OF_SIZES = {"Add", "Cast", "Concat", "Div", "Gather", "Identity", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze"}
"""Operators that are cheap to compute again, of sizes."""


class Recomputed:
    """Initialisers of a model, those of its nodes that compute from nothing else, and those that compute with the sizes
    of values only: so each piece knows them when it is compiled, be it as symbols."""

    def __init__(self, initializers: Iterable[onnx.TensorProto], nodes: Iterable[onnx.NodeProto]) -> None:
        self._tensors = {tensor.name: tensor for tensor in initializers}
        self._makers: dict[str, onnx.NodeProto] = {}
        self._sizes: set[str] = set()
        for node in nodes:
            read = list(filter(None, node.input))
            is_fixed = all(name in self and name not in self._sizes for name in read)
            is_size = node.op_type in ("Shape", "Size") or (
                node.op_type in _OF_SIZES and all(name in self for name in read))
            if (is_fixed and not subgraphs(node)) or (is_size and not node.domain):
                self._makers.update(dict.fromkeys(filter(None, node.output), node))
                self._sizes.update(() if is_fixed else filter(None, node.output))

    def __contains__(self, name: str) -> bool:
        return name in self._tensors or name in self._makers

    def is_size(self, name: str) -> bool:
        """Whether it depends on the sizes of values."""
        return name in self._sizes

    def tensor(self, name: str) -> onnx.TensorProto | None:
        """The initialiser of this name, if there is one."""
        return self._tensors.get(name)

    def needed(self, names: Iterable[str]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """The nodes, in order, and the initialisers that make these names, as far as they are here."""
        waiting, wanted = list(names), set[str]()
        while waiting:
            name = waiting.pop()
            if name in self and name not in wanted:
                wanted.add(name)
                waiting += self._makers[name].input if name in self._makers else ()
        makers = {id(node): node for name, node in self._makers.items() if name in wanted}
        return list(makers.values()), [tensor for name, tensor in self._tensors.items() if name in wanted]
