"""Axes of the channels in the data and the weights of a product: a convolution or matrix product, in float."""

from __future__ import annotations

import numpy as np

from ngraph_mxnet.ir.graph import Node


def data_axis(node: Node) -> int:
    """The axis of operand 0 along which the input channels are."""
    return 1 if node.op.kind == "convolution" else node.inputs[0].type.rank - 1


def result_axis(node: Node) -> int:
    """The axis of the result along which the output channels are."""
    return 1 if node.op.kind == "convolution" else node.outputs[0].type.rank - 1


def weight_axes(node: Node) -> tuple[int, int]:
    """The axes of operand 1 along which the output channels are, and the input channels of one group."""
    rank = node.inputs[1].type.rank
    if node.op.kind == "convolution":
        return 0, 1
    return (rank - 2, rank - 1) if node.attrs["transpose_b"] else (rank - 1, rank - 2)


def is_depthwise(node: Node) -> bool:
    """True if each weight of an output channel meets the same input channel."""
    return node.op.kind == "convolution" and node.inputs[1].shape[1] == 1


def by_input(node: Node, vector: np.ndarray) -> np.ndarray:
    """Numbers [I], one for each input channel, in a shape that broadcasts against the weights: each weight meets that
    of its channel."""
    outer, inner = weight_axes(node)
    rows = by_group(vector, node.inputs[1].shape[outer], node.attrs.get("groups", 1))
    shape = [1] * node.inputs[1].type.rank
    shape[outer], shape[inner] = rows.shape
    return rows.reshape(shape)


def by_group(vector: np.ndarray, outputs: int, groups: int) -> np.ndarray:
    """Numbers [I], one for each input channel, as [O, I / groups], or [1, I] where there is one group."""
    return vector[None] if groups == 1 else np.repeat(vector.reshape(groups, -1), outputs // groups, axis=0)


def input_ranges(node: Node, weights: np.ndarray) -> np.ndarray:
    """float [I], the largest magnitude of the weights that meet each input channel."""
    outer, inner = weight_axes(node)
    rows = np.abs(np.moveaxis(weights, (outer, inner), (0, 1)))
    groups = node.attrs.get("groups", 1)
    return rows.reshape(groups, rows.shape[0] // groups, rows.shape[1], -1).max(axis=(1, 3), initial=0).reshape(-1)
