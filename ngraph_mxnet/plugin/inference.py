"""What MXNet's own inference tells of a symbol's inputs: their names, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.base.errors import ModelError
from ngraph_mxnet.frontends.mxnet.importer import check_names, dtype_name, unknown_shapes, weights_of
from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
from ngraph_mxnet.plugin.arrays import brief

if TYPE_CHECKING:
    from mxnet.symbol import Symbol


def check_inputs(symbol: Symbol, shapes: Mapping[str, Sequence[int]], dtypes: Mapping[str, Any] | None = None) -> None:
    """Refuse names that are no inputs, dtypes that are none, and shapes that leave one of an input open.

    Raises:
        ModelError: naming the input, and what is there or missing.
    """
    import mxnet as mx

    names = symbol.list_inputs()
    check_names(names, {*shapes, *(dtypes or {})})
    for name, dtype in (dtypes or {}).items():
        dtype_name(name, dtype)
    try:
        arguments, _, states = symbol.infer_shape_partial(**{name: tuple(shape) for name, shape in shapes.items()})
    except mx.base.MXNetError as error:
        raise ModelError(f"MXNet can't infer the model's shapes from {dict(shapes)}: {brief(error)}") from None
    found = dict(zip([*symbol.list_arguments(), *symbol.list_auxiliary_states()],
                     [*(arguments or []), *(states or [])], strict=False))
    missing = [name for name in names if not is_whole(found.get(name))]
    if missing:
        graph = parse_symbol(symbol.tojson(remove_amp_cast=False))
        weights = {graph.nodes[index].name for index in weights_of(graph)}
        wanted = [name for name in missing if name not in weights] or missing
        for name in wanted:
            if name in shapes:  # an empty input, which `compile` and a running MXNet of NumPy's shapes may have
                raise ModelError(f"input {name!r}: found the shape {tuple(shapes[name])}, expected sizes of 1 or more: "
                                 "MXNet takes 0 for a size that is not known")
        raise ModelError(unknown_shapes(wanted))


def inferred_shapes(symbol: Symbol, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The shape of every input, from those that `check_inputs` found to be enough. The inference is partial, because
    MXNet infers no shape of outputs behind `while_loop` and `cond`."""
    given = {name: tuple(shape) for name, shape in shapes.items()}
    arguments, _, states = symbol.infer_shape_partial(**given)
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    return {**dict(zip(names, [*arguments, *states], strict=True)), **given}


def is_whole(shape: Sequence[int] | None) -> bool:
    """True if the whole shape is known. MXNet marks an unknown dimension with 0, or with -1 where 0 is a size
    (`mx.util.is_np_shape`)."""
    import mxnet as mx

    if mx.util.is_np_shape():
        return shape is not None and all(size >= 0 for size in shape)
    return shape is not None and len(shape) > 0 and all(size > 0 for size in shape)
