"""Models, and faults that are planted in them: a weight that is changed, and a kernel that computes something else."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.model_zoo import vision

import ngraph_mxnet
from ngraph_mxnet.program.program import Program
from ngraph_mxnet.targets.cpu.program.stored import Stored
from ngraph_mxnet.tools.audits import Difference, difference, open_run

Model = tuple[Any, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]
"""A symbol, its weights and its inputs."""


def _weighted(symbol: Any, inputs: Mapping[str, np.ndarray], scale: float = 0.3) -> Model:
    """With random weights, so that nothing in the model is zero or dies out."""
    random = np.random.default_rng(5)
    shapes, _, aux = symbol.infer_shape(**{name: array.shape for name, array in inputs.items()})
    weights = {}
    names = zip([*symbol.list_arguments(), *symbol.list_auxiliary_states()], [*shapes, *aux], strict=True)
    for name, shape in names:
        if name not in inputs:
            positive = name.endswith(("gamma", "var"))
            drawn = random.uniform(0.5, 1.5, shape) if positive else random.standard_normal(shape)
            weights[name] = (drawn if positive else drawn * scale).astype("f4")
    return symbol, weights, inputs


def _images(size: int) -> dict[str, np.ndarray]:
    return {"data": np.random.default_rng(1).standard_normal((1, 3, size, size)).astype("f4")}


def _zoo(name: str, size: int) -> Model:
    net = vision.get_model(name, classes=10, prefix=f"{name}_")
    return _weighted(net(mx.sym.var("data")), _images(size), 0.1)


def small_net() -> Model:
    x = data = mx.sym.Activation(mx.sym.Convolution(mx.sym.var("data"), num_filter=16, kernel=(3, 3), pad=(1, 1),
                                                    name="stem"), act_type="relu", name="stem_relu")
    for number in range(2):
        x = mx.sym.Convolution(x, num_filter=16, kernel=(3, 3), pad=(1, 1), no_bias=True, name=f"conv{number}")
        x = mx.sym.Activation(mx.sym.BatchNorm(x, fix_gamma=False, name=f"bn{number}"), act_type="relu",
                              name=f"relu{number}")
    x = mx.sym.Pooling(mx.sym.elemwise_add(x, data, name="add"), kernel=(2, 2), stride=(2, 2), name="pool")
    x = mx.sym.FullyConnected(mx.sym.Flatten(x, name="flat"), num_hidden=10, name="head")
    return _weighted(mx.sym.softmax(mx.sym.tanh(x, name="tanh"), name="softmax"), _images(8), 0.1)


def attention_net() -> Model:
    x = mx.sym.var("data")
    for number in range(2):
        parts = [mx.sym.FullyConnected(x, num_hidden=24, flatten=False, name=f"{part}{number}") for part in "qkv"]
        weights = mx.sym.softmax(mx.sym.batch_dot(parts[0], parts[1], transpose_b=True, name=f"scores{number}"),
                                 name=f"softmax{number}")
        mixed = mx.sym.batch_dot(weights, parts[2], name=f"mix{number}")
        x = mx.sym.LayerNorm(mx.sym.elemwise_add(x, mixed, name=f"sum{number}"), name=f"norm{number}")
    return _weighted(x, {"data": np.random.default_rng(2).standard_normal((2, 9, 24)).astype("f4")})


SMALL: dict[str, Callable[[], Model]] = {"small": small_net, "attention": attention_net}
MODELS: dict[str, Callable[[], Model]] = {
    **SMALL,
    "resnet18": lambda: _zoo("resnet18_v1", 64),
    "squeezenet": lambda: _zoo("squeezenet1.1", 224),
    "mobilenet": lambda: _zoo("mobilenetv2_0.25", 64),
}


def recorded(folder: Path, model: Model, weights: Mapping[str, np.ndarray] | None = None, tensors: str = "all") -> Any:
    """What was compiled of the model, with these weights, after a call that was recorded in the folder."""
    symbol, own, inputs = model
    with ngraph_mxnet.audit(folder, tensors=tensors):
        executable = ngraph_mxnet.compile(symbol, "CPU", weights=weights or own,
                                          shapes={name: array.shape for name, array in inputs.items()})
        executable(inputs)
    return executable


def parting(a: Path, b: Path) -> Difference:
    return difference(open_run(a), open_run(b))


def reader_of(symbol: Any, weight: str) -> str:
    """The name of the operator that reads it."""
    from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol

    graph = parse_symbol(symbol.tojson())
    (place,) = (node.index for node in graph.nodes if node.name == weight)
    return next(node.origin for node in graph.nodes if place in [edge.node for edge in node.inputs])


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64),
                           ctypes.POINTER(ctypes.c_double), ctypes.c_int64, ctypes.c_int64)


def can_be_wrong(executable: Any, stored: Stored) -> bool:
    """Whether the node is computed by the last instruction that writes the value, and does not only move another one;
    and the value's first element, of f32, lies where an operand of that begins."""
    step = executable.main.steps[stored.step]
    has_first = stored.view.type.element.name == "f32" and stored.view.type.size > 0
    return step.origin == str(stored.node) and has_first and stored.view.operand in step.operands


@contextmanager
def wrong_kernel(executable: Any, stored: Stored) -> Iterator[None]:
    """What is compiled within, of the same graph, changes the first element of this value when it stores it."""
    steps, instructions = executable.main.steps, executable.main.instructions
    names, operand = [each.kernel for each in instructions], steps[stored.step].operands.index(stored.view.operand)
    place = instructions.index(steps[stored.step])
    native = Program.native
    kept = []

    def faulty(address: int) -> int:
        kernel = _KERNEL(address)

        def run(tensors: Any, ints: Any, floats: Any, begin: int, end: int) -> None:
            kernel(tensors, ints, floats, begin, end)
            if begin == 0:
                first = ctypes.cast(tensors[operand], ctypes.POINTER(ctypes.c_float))
                first[0] = 1.5 * first[0] + 0.25

        kept.extend((kernel, _KERNEL(run)))
        found = ctypes.cast(kept[-1], ctypes.c_void_p).value
        assert found is not None
        return found

    def patched(self: Program, address: Callable[[str], int], owner: Any = None) -> Any:
        if [kernel for kernel, *_ in self.instructions] != names:
            return native(self, address, owner)
        instructions = list(self.instructions)
        instructions[place] = ("faulty", *instructions[place][1:])
        wrong = faulty(address(names[place]))
        return native(replace(self, instructions=instructions),
                      lambda name: wrong if name == "faulty" else address(name), (owner, kept))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Program, "native", patched)
        yield
