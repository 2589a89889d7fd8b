"""Shapes that a symbol leaves open: of the states with which recurrent cells begin (their batch is 0, for unknown), and
of ranges that are as long as what is added to them. MXNet infers them from those that read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ngraph_mxnet.bridges.mxnet.error_texts import brief
from ngraph_mxnet.bridges.mxnet.symbols.symbol_json import SymbolGraph, SymbolNode
from ngraph_mxnet.errors import UnsupportedError
from ngraph_mxnet.ir.dims import Atom, Dim
from ngraph_mxnet.ir.sizes import at_hand, evaluate, symbols_in
from ngraph_mxnet.ir.types import Shape, TensorType, element_type

_VERSION = {"mxnet_version": ["int", 10901]}


def with_open_shapes(symbol: SymbolGraph, types: Sequence[TensorType]) -> SymbolGraph:
    """The graph in which operators that leave their shape open have the type that MXNet infers from those of the
    arguments, and no type where it infers none. Where sizes are symbols, an open one is linear in them.

    Raises:
        UnsupportedError: an open size is not linear in those that are symbols, or MXNet finds the types inconsistent.
    """
    places = [node.index for node in symbol.nodes if _is_open(node)]
    if not places:
        return symbol
    found = _Inference(symbol, types, places)
    nodes = list(symbol.nodes)
    for place, type_ in found.types().items():
        nodes[place] = replace(nodes[place], types=(type_,))
    return replace(symbol, nodes=tuple(nodes))


def _is_open(node: SymbolNode) -> bool:
    if node.is_variable or node.inputs:
        return False
    if node.attrs.get("infer_range") in ("True", "1"):
        return True
    least = 0 if node.op.startswith("_np") else 1  # to NumPy's operators 0 is a size
    return any(int(size) < least for size in re.findall(r"-?\d+", node.attrs.get("shape", "")))


class _Inference:
    """MXNet's, of the outputs of the nodes at `places`."""

    def __init__(self, symbol: SymbolGraph, types: Sequence[TensorType], places: Sequence[int]) -> None:
        from mxnet import symbol as mx_symbol

        named = tuple(replace(node, name=f"n{node.index}", attrs={} if node.is_variable else node.attrs)
                      for node in symbol.nodes)
        text = json.dumps(replace(symbol, nodes=named).to_json() | {"attrs": _VERSION})
        with _refusals():
            self._internals = mx_symbol.load_json(text).get_internals()
        outputs = self._internals.list_outputs()
        self._outputs = {place: outputs.index(f"n{place}_output") for place in places}
        self._told = {f"n{node.index}": type_ for node, type_ in zip(symbol.arguments(), types, strict=True)}
        self._origins = {place: symbol.nodes[place].origin for place in places}

    def types(self) -> dict[int, TensorType | None]:
        """By place."""
        told = {name: type_.element.numpy for name, type_ in self._told.items()}
        with _refusals():
            dtypes = self._internals.infer_type_partial(**told)[1]
        return {place: None if shape is None else TensorType(element_type(dtypes[self._outputs[place]]), shape)
                for place, shape in self._shapes().items()}

    def _shapes(self) -> dict[int, Shape | None]:
        symbols = symbols_in({name: type_.shape for name, type_ in self._told.items()})
        now = {atom.text: at_hand(Dim({(atom,): 1})) for atom in symbols}
        found = self._at(now)
        for atom in symbols:
            step = _step(atom, now, 1)
            moved = self._at({**now, atom.text: now[atom.text] + step})
            for place, shape in found.items():
                if shape is None:
                    continue
                before = _evaluated(shape, now)
                found[place] = tuple(size + (b - a) // step * (Dim({(atom,): 1}) - now[atom.text])
                                     for size, a, b in zip(shape, before, moved[place] or before, strict=True))
        for binding in _others(symbols, now):
            wanted = self._at(binding)
            for place, shape in found.items():
                if shape and _evaluated(shape, binding) != wanted[place]:
                    raise UnsupportedError(f"{self._origins[place]}: its shape, which the model leaves open, is not "
                                           "linear in the sizes that change")
        return found

    def _at(self, binding: Mapping[str, int]) -> dict[int, Shape | None]:
        """The shapes for these sizes; None where MXNet infers none."""
        from mxnet.util import np_shape

        shapes = {name: _evaluated(type_.shape, binding) for name, type_ in self._told.items()}
        with _refusals(), np_shape(False):
            found = self._internals.infer_shape_partial(**shapes)[1]
        return {place: found[at] if found[at] and min(found[at]) > 0 else None for place, at in self._outputs.items()}


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn MXNet's error about a graph into an UnsupportedError."""
    from mxnet.base import MXNetError

    try:
        yield
    except MXNetError as error:
        raise UnsupportedError(f"MXNet can't infer shapes that are left open: {brief(error)}") from None


def _evaluated(shape: Shape, binding: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(size, binding) for size in shape)


def _others(symbols: Sequence[Atom], now: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Sizes at which what was found must hold."""
    for atom in symbols:
        yield {**now, atom.text: now[atom.text] + _step(atom, now, 5)}
    if symbols:
        yield {atom.text: now[atom.text] + _step(atom, now, 2) for atom in symbols}


def _step(atom: Atom, now: Mapping[str, int], step: int) -> int:
    """That far up, or down where that leaves the symbol's bounds."""
    size = now[atom.text]
    return -step if size + step > atom.high and size - step >= atom.low else step
