"""`ngraph_mxnet.explain`, `explain_shapes` and `explain_training`, for models of MXNet and ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.errors import ConfigError, ModelError
from ngraph_mxnet.model_kinds import Kind, kind_of

if TYPE_CHECKING:
    from ngraph_mxnet.bridges.mxnet.explain import Explanation
    from ngraph_mxnet.bridges.mxnet.explain_training import TrainingExplanation
    from ngraph_mxnet.explaining.onnx_model import OnnxExplanation
    from ngraph_mxnet.runtime.range_report import RangeExplanation

Shapes = Mapping[str, Sequence[int]]
DTypes = Mapping[str, Any]


def explain(model: Any, shapes: Shapes | None = None, dtypes: DTypes | None = None, *, backend: str | None = None,
            kernels: bool = False, options: Mapping[str, Any] | None = None) -> Explanation | OnnxExplanation:
    """Which parts of a model run on a backend, and why the others do not. Nothing runs.

    Args:
        model: an MXNet symbol, as the object or the path of its `-symbol.json`; a Gluon HybridBlock; or an ONNX model,
            as its path, its bytes or an `onnx.ModelProto`.
        shapes: of a symbol's data, by name; of a block's inputs, in its order, which get these names; of inputs that an
            ONNX model leaves open.
        dtypes: of inputs of a symbol or block, by name; float32 where not given.
        backend: by default the one of NGRAPH_BACKEND.
        kernels: compile what runs on the backend, too, and tell what it makes of it: of the CPU's, how each contraction
            is computed, and the memory.
        options: the backend's own, which its plan depends on.

    Raises:
        ModelError: the model is damaged, an input's name or dtype is wrong, a shape is missing or does not fit.
        ConfigError: no such backend or option, `kernels` of a backend that has none, or a model of another kind.
    """
    kind, model = _kind(model)
    if kind is Kind.ONNX:
        from ngraph_mxnet.explaining.onnx_model import explain_onnx

        _refuse_dtypes(dtypes)
        return explain_onnx(model, shapes or {}, backend, kernels=kernels, options=options)
    from ngraph_mxnet.bridges.mxnet.explain import explain as explain_symbol

    return explain_symbol(_symbol(kind, model, shapes, dtypes), shapes or {}, dtypes, backend=backend, kernels=kernels,
                          options=options)


def explain_shapes(model: Any, shapes: Shapes, axes: Mapping[str, Sequence[int]], dtypes: DTypes | None = None, *,
                   backend: str | None = None) -> RangeExplanation:
    """Explain what would be compiled once for all sizes of these axes, and what that assumes of the sizes.

    Args:
        model, shapes, dtypes, backend: as for `explain`.
        axes: those whose sizes change, by the input's name.

    Raises:
        ModelError, ConfigError: as `explain`; also for an axis that there is not, or sizes that do not fit.
        UnsupportedError: an input of an ONNX model is no tensor.
    """
    kind, model = _kind(model)
    if kind is Kind.ONNX:
        from ngraph_mxnet.bridges.onnx.explain_shapes import explain_onnx_shapes

        _refuse_dtypes(dtypes)
        return explain_onnx_shapes(model, shapes, axes, backend)
    from ngraph_mxnet.bridges.mxnet.explain_shapes import explain_shapes as explain_symbol_shapes

    return explain_symbol_shapes(_symbol(kind, model, shapes, dtypes), shapes, axes, dtypes, backend=backend)


def explain_training(model: Any, shapes: Shapes, dtypes: DTypes | None = None) -> TrainingExplanation:
    """Explain where each node and each parameter's update would run in training, on the CPU or in MXNet, and why.

    Args:
        model: a symbol or a Gluon block, as for `explain`; all its arguments are trained but those in `shapes` and
            labels.

    Raises:
        ModelError, ConfigError: as `explain`; an ONNX model is not trained.
    """
    kind, model = _kind(model)
    if kind is Kind.ONNX:
        raise ConfigError("an ONNX model is not trained: expected a symbol or a Gluon block")
    from ngraph_mxnet.bridges.mxnet.explain_training import explain_training as explain_symbol_training

    return explain_symbol_training(_symbol(kind, model, shapes, dtypes), shapes, dtypes)


def _kind(model: Any) -> tuple[Kind, Any]:
    kind, model = kind_of(model)
    if kind not in (Kind.SYMBOL, Kind.BLOCK, Kind.ONNX):
        raise ConfigError(f"found a {kind.value}, expected a symbol, a Gluon block or an ONNX model; `ngraph-mxnet "
                          "show` shows a graph at each stage of its compilation")
    return kind, model


def _refuse_dtypes(dtypes: DTypes | None) -> None:
    if dtypes:
        raise ConfigError("dtypes are for symbols and Gluon blocks; an ONNX model says its inputs' types")


def _symbol(kind: Kind, model: Any, shapes: Shapes | None, dtypes: DTypes | None) -> Any:
    """The symbol that `model` is, or that a block makes."""
    if kind is Kind.SYMBOL:
        return model
    if not shapes:
        raise ModelError("a Gluon block needs the shapes of its inputs, in its order: "
                         "shapes={'data': (1, 3, 224, 224)}")
    from ngraph_mxnet.bridges.mxnet.whole import WholeSymbol

    return WholeSymbol.of_block(model, shapes, dtypes).symbol
