"""Random MXNet nets in 8 bits, as `mx.contrib.quantization` makes them, calibrated or not, fused by MKL-DNN or not."""

from __future__ import annotations

import contextlib
import io
import logging

from fuzzing.values import (
    sizes,
    test_helpers,  # noqa: F401  (before what it makes importable)
)
from fuzzing.values.closeness import Closeness
from fuzzing.values.drawing import Draw, chance, generator, integer, pick
from fuzzing.values.families.symbols import operators_of
from fuzzing.values.setups import draw_setup
from fuzzing.values.trials import Trial, family
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.importer import import_symbol

# isort: split
import mxnet as mx
import numpy as np
from hypothesis import reject
from mxnet.contrib import quantization
from mxnet_helpers import backend
from random_models import values_for

sym = mx.sym


def _net(draw: Draw) -> mx.sym.Symbol:
    """Of layers that quantisation knows: convolutions, pools, sums, concats, a dense layer."""
    values = [sym.Variable("data")]
    for number in range(integer(draw, 1, 6)):
        x = pick(draw, *values[-2:]) if number else values[0]
        kind = pick(draw, "conv", "conv", "conv", "pool", "join", "plus") if number else "conv"
        if kind == "conv":
            size = pick(draw, 1, 3, 3)
            x = sym.Convolution(x, num_filter=sizes.draw_channels(draw, 48), kernel=(size, size), pad=(size // 2,) * 2,
                                stride=(1, 1), no_bias=chance(draw), name=f"conv{number}")
            if chance(draw):
                x = sym.BatchNorm(x, fix_gamma=False, name=f"norm{number}")
            if chance(draw):
                x = sym.Activation(x, act_type="relu", name=f"relu{number}")
        elif kind == "pool":
            x = sym.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type=pick(draw, "max", "avg"), name=f"pool{number}")
        elif kind == "join":
            x = sym.concat(x, values[-1], dim=1, name=f"join{number}")
        else:
            x = sym.elemwise_add(x, x, name=f"plus{number}")
        values.append(x)
    x = values[-1]
    if chance(draw):
        x = sym.FullyConnected(x, num_hidden=sizes.draw_channels(draw, 48), name="dense")
    return x


@family("MXNet's int8", weight=3)
def int8(draw: Draw) -> Trial:
    with mx.name.NameManager():
        symbol = _net(draw)
    shape = pick(draw, 1, 2), pick(draw, 3, 16), integer(draw, 4, 10), integer(draw, 4, 10)
    seed, rng = integer(draw, 0, 2**10), generator(draw)
    try:
        shapes, _, states = symbol.infer_shape(data=shape)
    except mx.base.MXNetError:  # a sum or concat of images of different sizes
        reject()
    arguments = {name: mx.nd.array(values_for(name, size, seed))
                 for name, size in zip(symbol.list_arguments(), shapes, strict=True) if name != "data"}
    auxiliary = {name: mx.nd.array(values_for(name, size, seed))
                 for name, size in zip(symbol.list_auxiliary_states(), states, strict=True)}
    fused, mode = chance(draw), pick(draw, "naive", "naive", "entropy", "none")
    dtype = pick(draw, "auto", "uint8", "int8")
    samples = rng.uniform(-1, 1, (4 * shape[0], *shape[1:])).astype(np.float32)
    examples = mx.io.NDArrayIter(samples, batch_size=shape[0])
    calibration = {} if mode == "none" else {"calib_data": examples, "num_calib_examples": 4 * shape[0]}
    logging.getLogger().setLevel(logging.ERROR)
    try:
        with backend("NONE"), contextlib.redirect_stdout(io.StringIO()):
            if fused:
                symbol = symbol.get_backend_symbol("MKLDNN_QUANTIZE")
            symbol, arguments, auxiliary = quantization.quantize_model(
                symbol, arguments, auxiliary, label_names=None, calib_mode=mode, quantized_dtype=dtype,
                quantize_mode=pick(draw, "full", "smart"), **calibration)
            if fused:
                symbol = symbol.get_backend_symbol("MKLDNN_QUANTIZE")
    except (RuntimeError, ValueError):
        reject()  # of MXNet, which does not quantise all that it says
    weights = {name: array.asnumpy() for name, array in {**arguments, **auxiliary}.items()}
    calls = [{**weights, "data": rng.uniform(-1, 1, shape).astype(np.float32)} for _ in range(pick(draw, 1, 2))]
    wanted = {*symbol.list_arguments(), *symbol.list_auxiliary_states()}
    calls = [{name: array for name, array in feeds.items() if name in wanted} for feeds in calls]
    try:
        import_symbol(symbol.tojson(), {name: array.shape for name, array in calls[0].items()},
                      {name: array.dtype.name for name, array in calls[0].items()})
    except UnsupportedError:
        reject()
    return Trial("8-bit symbol", symbol.tojson().encode(), calls, draw_setup(draw), Closeness(0.02, 0.02, share=0.05),
                 operators_of(symbol))
