"""Parameters that do not fit give MXNet's own kind of error at bind, and the text names the node."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from mxnet_helpers import backend, mx, needs_library

pytestmark = needs_library

Case = tuple[str, dict[str, Any], tuple[tuple[int, ...], ...]]

IMAGE = (2, 4, 6, 6)

#: Operator, attributes, shapes of its inputs. What makes MXNet read beyond its arrays is not here: an axis of transpose
#: that stands twice, a Reshape to -1 that leaves a remainder, a scale of BatchNorm of another length.
CASES: list[Case] = [
    # a kernel, a stride or a window that does not fit
    ("Convolution", {"kernel": (9, 9), "num_filter": 4}, (IMAGE,)),
    ("Convolution", {"kernel": (3, 3), "num_filter": 4, "dilate": (4, 4)}, (IMAGE,)),
    ("Convolution", {"kernel": (3, 3), "num_filter": 4, "num_group": 3}, (IMAGE,)),
    ("Convolution", {"kernel": (3, 3), "num_filter": 3, "num_group": 2}, (IMAGE,)),
    ("Convolution", {"kernel": (3, 3), "num_filter": 4, "stride": (0, 1)}, (IMAGE,)),
    ("Convolution", {"kernel": (3, 3), "num_filter": 4}, ((2, 4, 6),)),
    ("Convolution", {"kernel": (3,), "num_filter": 4}, (IMAGE,)),
    ("Deconvolution", {"kernel": (3, 3), "num_filter": 3, "num_group": 2}, (IMAGE,)),
    ("Pooling", {"kernel": (9, 9), "pool_type": "max"}, (IMAGE,)),
    ("Pooling", {"kernel": (9, 9), "pool_type": "avg", "pooling_convention": "full"}, (IMAGE,)),
    ("Pooling", {"kernel": (2, 2), "pool_type": "max", "pad": (2, 2)}, (IMAGE,)),
    ("Pooling", {"kernel": (2, 2), "pool_type": "max"}, ((2, 4),)),
    ("UpSampling", {"scale": 2, "sample_type": "nearest"}, ((2, 4),)),
    # an axis out of range
    ("Concat", {"dim": 4}, (IMAGE, IMAGE)),
    ("softmax", {"axis": 4}, (IMAGE,)),
    ("log_softmax", {"axis": -5}, (IMAGE,)),
    ("sum", {"axis": 4}, (IMAGE,)),
    ("mean", {"axis": (0, -5)}, (IMAGE,)),
    ("max", {"axis": (1, 1)}, (IMAGE,)),
    ("argmax", {"axis": 4}, (IMAGE,)),
    ("expand_dims", {"axis": 6}, (IMAGE,)),
    ("squeeze", {"axis": 1}, (IMAGE,)),
    ("transpose", {"axes": (0, 1, 2, 4)}, (IMAGE,)),
    ("SwapAxis", {"dim1": 0, "dim2": 4}, (IMAGE,)),
    ("slice_axis", {"axis": 4, "begin": 0, "end": 1}, (IMAGE,)),
    ("slice_axis", {"axis": 1, "begin": 3, "end": 2}, (IMAGE,)),
    ("SliceChannel", {"num_outputs": 2, "axis": 4}, (IMAGE,)),
    ("LayerNorm", {"axis": 4}, (IMAGE,)),
    ("BatchNorm", {"axis": 4}, (IMAGE,)),
    ("stack", {"axis": 5}, (IMAGE, IMAGE)),
    ("reverse", {"axis": 4}, (IMAGE,)),
    ("repeat", {"repeats": 2, "axis": 4}, (IMAGE,)),
    ("topk", {"axis": 4}, (IMAGE,)),
    ("sort", {"axis": 4}, (IMAGE,)),
    ("take", {"axis": 4}, (IMAGE, (2,))),
    ("pick", {"axis": 4}, (IMAGE, (2, 4, 6))),
    # shapes that do not match
    ("FullyConnected", {"num_hidden": 3}, ((2, 4), (3, 5))),
    ("elemwise_add", {}, ((2, 3), (2, 4))),
    ("broadcast_add", {}, ((2, 3), (2, 4))),
    ("broadcast_to", {"shape": (2, 5)}, ((2, 3),)),
    ("broadcast_axis", {"axis": 1, "size": 4}, ((2, 3),)),
    ("dot", {}, ((2, 3), (4, 5))),
    ("batch_dot", {}, ((2, 3, 4), (2, 5, 6))),
    ("batch_dot", {}, ((2, 3, 4), (3, 4, 6))),
    ("Concat", {"dim": 1}, (IMAGE, (2, 4, 6, 5))),
    ("stack", {"axis": 0}, ((2, 3), (2, 4))),
    ("add_n", {}, ((2, 3), (2, 4))),
    ("where", {}, ((2, 3), (2, 3), (2, 4))),
    ("SliceChannel", {"num_outputs": 3, "axis": 1}, (IMAGE,)),
    ("Reshape", {"shape": (-1, -1)}, (IMAGE,)),
    ("Reshape", {"shape": (0, 0, 0, 0, 0)}, (IMAGE,)),
    ("reshape_like", {}, ((2, 3), (4, 2))),
    ("Embedding", {"input_dim": 7, "output_dim": 3}, ((2, 3), (7, 4))),
    ("LeakyReLU", {"act_type": "prelu"}, (IMAGE, (3,))),
    ("Pad", {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 1)}, (IMAGE,)),
    ("slice", {"begin": (0, 5), "end": (1, 5)}, (IMAGE,)),
    ("slice_like", {"axes": (4,)}, (IMAGE, IMAGE)),
    ("tile", {"reps": (-1, 2)}, (IMAGE,)),
    ("RNN", {"state_size": 3, "num_layers": 1, "mode": "lstm"}, ((5, 2, 4), (7,))),
    ("GroupNorm", {"num_groups": 3}, (IMAGE,)),
    ("depth_to_space", {"block_size": 3}, (IMAGE,)),
    ("space_to_depth", {"block_size": 4}, (IMAGE,)),
    ("Crop", {"num_args": 1, "h_w": (9, 9)}, (IMAGE,)),
    ("ROIPooling", {"pooled_size": (2, 2), "spatial_scale": 1.0}, (IMAGE, (3, 4))),
]


def model(case: Case) -> mx.sym.Symbol:
    """The operator as node `culprit`, between nodes that regions take."""
    op, attributes, shapes = case
    inputs = [mx.sym.relu(mx.sym.var(f"x{place}"), name=f"before{place}") for place in range(len(shapes))]
    culprit = getattr(mx.sym, op)(*inputs, name="culprit", **attributes)
    return mx.sym.relu(culprit[0], name="after")


def shapes_of(case: Case) -> dict[str, tuple[int, ...]]:
    return {f"x{place}": shape for place, shape in enumerate(case[2])}


def attempt(run: Callable[[], Any]) -> tuple[type | None, str]:
    """The class and text of the error, if there is one."""
    try:
        run()
    except Exception as error:
        with suppress(mx.MXNetError):  # what else was under way, which would fail the next to wait
            mx.nd.waitall()
        return type(error), str(error)
    return None, ""


def by_simple_bind(case: Case) -> None:
    executor = model(case).simple_bind(mx.cpu(), grad_req="null", **shapes_of(case))
    mx.nd.concat(*(output.reshape(-1) for output in executor.forward()), dim=0).wait_to_read()


def by_bind(case: Case) -> None:
    symbol, shapes = model(case), shapes_of(case)
    known = symbol.infer_shape_partial(**shapes)[0]
    arrays = {name: mx.nd.ones(shape if shape and all(shape) else (1,))
              for name, shape in zip(symbol.list_arguments(), known, strict=True)}
    states = {name: mx.nd.ones(1) for name in symbol.list_auxiliary_states()}
    for output in symbol.bind(mx.cpu(), arrays, grad_req="null", aux_states=states).forward():
        output.wait_to_read()


def by_block(case: Case) -> None:
    symbol = model(case)
    block = mx.gluon.SymbolBlock(symbol, [mx.sym.var(name) for name in shapes_of(case)])
    block.initialize()
    block.hybridize()
    output = block(*(mx.nd.ones(shape) for shape in case[2]))
    for array in output if isinstance(output, list) else [output]:
        array.wait_to_read()


def label(case: Case) -> str:
    return f"{case[0]}-{'-'.join(f'{key}={value}' for key, value in case[1].items())}".replace(" ", "")


@pytest.mark.parametrize("run", [by_simple_bind, by_bind, by_block], ids=lambda run: run.__name__)
@pytest.mark.parametrize("case", CASES, ids=label)
def test_the_error_is_mxnets_and_names_the_node(case: Case, run: Callable[[Case], None]) -> None:
    with backend("NONE"):
        native, its_text = attempt(lambda: run(case))
    with backend("NGRAPH"):
        ours, our_text = attempt(lambda: run(case))
    assert native is not None
    assert ours is native
    assert "culprit" in our_text or "culprit" not in its_text
