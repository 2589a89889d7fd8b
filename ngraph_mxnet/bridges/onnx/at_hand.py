"""What can't be lowered for sizes that are symbols is lowered for those at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ngraph_mxnet.bridges.onnx.values import Item, TensorSequence
from ngraph_mxnet.ir import Builder, Value


def of_sizes_at_hand(b: Builder, items: Sequence[Item | None],
                     static_value: Callable[[Value], np.ndarray | None]) -> list[Item | None]:
    """The items with numbers in place of symbols, in their shapes and where they are sizes themselves. Guards hold
    these, so that what is compiled is for these sizes.

    Raises:
        UnknownSize: there are no sizes at hand.
    """
    def fixed(value: Value) -> Value:
        sizes = static_value(value)
        if sizes is not None and _is_of_symbols(sizes):
            return b.constant(sizes.astype(np.int64), value.type.element)
        return b.reshape(value, shape=[int(size) for size in value.shape]) if value.type.is_symbolic else value

    return [TensorSequence(tuple(map(fixed, item.items))) if isinstance(item, TensorSequence) else
            fixed(item) if isinstance(item, Value) else item for item in items]


def have_symbols(items: Sequence[Item | None], static_value: Callable[[Value], np.ndarray | None]) -> bool:
    """Whether a size among them is a symbol."""
    values = [value for item in items for value in (item.items if isinstance(item, TensorSequence) else [item])
              if isinstance(value, Value)]
    return any(value.type.is_symbolic or _is_of_symbols(static_value(value)) for value in values)


def _is_of_symbols(sizes: np.ndarray | None) -> bool:
    return sizes is not None and sizes.dtype.kind == "O"
