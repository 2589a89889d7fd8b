"""Training steps of random MXNet models, with parts that are frozen, on shapes that change or stay."""

from __future__ import annotations

from fuzzing.values import test_helpers  # noqa: F401  (before what it makes importable)
from fuzzing.values.closeness import Closeness
from fuzzing.values.drawing import Draw, chance, generator, integer, pick
from fuzzing.values.families.symbols import drawn_model, is_bindable, operators_of
from fuzzing.values.setups import draw_setup
from fuzzing.values.trials import Trial, family

# isort: split
import mxnet as mx
import numpy as np
from hypothesis import reject
from native_runs import all_shapes
from random_models import values_for
from test_random_training import REQUESTS, WAYS, prepared


@family("training", weight=6)
def training(draw: Draw) -> Trial:
    symbol, shape = drawn_model(draw)
    if '"LRN"' in symbol.tojson() or not is_bindable(symbol, shape):
        reject()  # of LRN MXNet's backward ends the process for one channel
    with mx.name.NameManager():
        symbol, rng = prepared(symbol), generator(draw)
    names = symbol.list_arguments()
    frozen = integer(draw, 0, len(names)) if chance(draw) else 0
    requests = {name: "null" if place < frozen else pick(draw, *REQUESTS) for place, name in enumerate(names)}
    if all(request == "null" for request in requests.values()):
        requests[names[-1]] = "write"
    calls = []
    for number, of_data in enumerate(_shapes(draw, symbol, shape)):
        shapes = all_shapes(symbol, {"data": of_data})
        _, sizes, _ = symbol.infer_shape(data=of_data)
        feeds = {name: values_for(name, size, number + integer(draw, 0, 2**10)) for name, size in shapes.items()}
        feeds |= {f"head {place}": rng.uniform(-1, 1, size).astype(np.float32) for place, size in enumerate(sizes)}
        feeds |= {f"before {name}": rng.uniform(-1, 1, shapes[name]).astype(np.float32) for name in names}
        calls.append(feeds)
    setup = draw_setup(draw, codegen=False)
    way = pick(draw, *WAYS)
    # Sums of gradients over images are long; what is left of those that cancel, such as that of a scale in front of a
    # norm, is rounding of all that was summed.
    summed = max(array.size for feeds in calls for name, array in feeds.items() if name.startswith("head "))
    closeness = Closeness(5e-3, 5e-3, floor=max(5e-4, 4e-6 * summed))
    return Trial("training", symbol.tojson().encode(), calls, setup, closeness,
                 operators_of(symbol), {"requests": requests, "way": way})


def _shapes(draw: Draw, symbol: mx.sym.Symbol, first: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Of the data of each step: all the same, or with another batch or length from step to step, as far as the weights
    allow."""
    count = pick(draw, 2, 2, 3)
    if chance(draw):
        return [first] * count
    own, found = _weights(symbol, first), [first]
    for _ in range(pick(draw, 2, 3, 4)):
        shape = tuple(integer(draw, 1, 2 * size + 1) if axis != 1 and chance(draw) else size
                      for axis, size in enumerate(first))
        if shape != found[-1] and is_bindable(symbol, shape) and _weights(symbol, shape) == own:
            found.append(shape)
    return found if len(found) > 1 else [first] * count


def _weights(symbol: mx.sym.Symbol, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    shapes = all_shapes(symbol, {"data": shape})
    del shapes["data"]
    return shapes
