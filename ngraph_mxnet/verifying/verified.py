"""`ngraph_mxnet.verify`: a model's results against a reference's, and where they diverge."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngraph_mxnet import config
from ngraph_mxnet.errors import ConfigError, NGraphError, UnsupportedError
from ngraph_mxnet.ir.parser import parse_graph
from ngraph_mxnet.model_kinds import Kind, kind_of
from ngraph_mxnet.progress import progress
from ngraph_mxnet.runtime.backend import canonical_name, check_options, get_backend
from ngraph_mxnet.runtime.executable import as_array
from ngraph_mxnet.runtime.feeds import SEED
from ngraph_mxnet.verifying.bisection import Bisection
from ngraph_mxnet.verifying.comparison import DEFAULTS, Tolerance, compare
from ngraph_mxnet.verifying.models import INTERPRETER, GraphModel, Model
from ngraph_mxnet.verifying.report import Diverging, Verification

REFERENCES = ("mxnet", "onnxruntime", INTERPRETER)


def verify(model: Any, against: str | None = None, *, inputs: Any = None,
           shapes: Mapping[str, Sequence[int]] | None = None, params: Any = None, reference_params: Any = None,
           dtypes: Mapping[str, str] | None = None, backend: str | None = None, tolerance: float | None = None,
           seed: int = SEED, **options: Any) -> Verification:
    """Run a model compiled and on a reference; if an output differs, find the first value that does.

    Args:
        model: an MXNet symbol, as the object or the path of its `-symbol.json`; a Gluon HybridBlock; an ONNX model, as
            its path, its bytes or an `onnx.ModelProto`; a `Graph`, its text, or the path of that.
        against: `mxnet`, its own operators; `onnxruntime`; or `interpreter`, the definitions of the IR. By default
            MXNet for symbols and blocks, ONNX Runtime for ONNX models where it is installed, else the interpreter.
        inputs: arrays by name, or in the model's order; those that are missing are drawn at random.
        shapes: of inputs that are not given, where the model leaves them open.
        params: of a symbol or a graph, arrays by name, or a symbol's `.params` file; random if not given.
        reference_params: for the reference's run alone, the same of a symbol or graph; of an ONNX model another one,
            whose initialisers it takes.
        dtypes: of a symbol's inputs; float32 where not given.
        backend: a name from `backends()`; by default the value of NGRAPH_BACKEND.
        tolerance: how far a float may be from the reference's, over the largest magnitude of its tensor; by default
            1e-3, in float16 (of models that store values so, too) 1e-2, in bf16 5e-2, in int8 0.2.
        options: the backend's own, as `precision="bf16"`.

    Raises:
        ModelError, InputError: the model is malformed, or an array, shape or weight is missing or does not fit.
        UnsupportedError: it can't be compiled, and no framework of its own runs the rest; the text says why.
        ConfigError: an argument's value is not allowed, or the reference is not installed or not for such models.
    """
    name = canonical_name(backend if backend is not None else config.get("NGRAPH_BACKEND"))
    check_options(name, options)
    if tolerance is not None and not (tolerance >= 0 and math.isfinite(tolerance)):
        raise ConfigError(f"tolerance: found {tolerance}, expected a number from 0 on")
    found = _model(model, _arrays(inputs), shapes or {}, params, reference_params, dtypes or {}, name, seed)
    against = _reference(found, against)
    precision = get_backend(name).precision(options)
    coarsest = "f16" if precision == "f32" and found.has_halves else precision
    allowed = Tolerance(DEFAULTS[coarsest] if tolerance is None else tolerance)
    with progress("verifying", 3) as advance:
        ours = found.results(name, options)
        advance()
        expected = found.expected(against)
        advance()
        outputs = [(output, compare(_tensor(output, mine), _tensor(output, theirs), allowed))
                   for output, mine, theirs in zip(found.output_names, ours, expected, strict=True)]
        advance()
    about = Verification(_title(model), name, precision, found.reference_title(against), _told(found, seed),
                         found.weights + ("; other ones in the reference" if reference_params is not None else ""),
                         str(allowed), outputs, found.note)
    return about if about.agrees else about.with_diverging(*_diverging(found, against, name, options, allowed))


def _diverging(model: Model, against: str, backend: str, options: Mapping[str, Any],
               tolerance: Tolerance) -> tuple[Diverging | None, str | None]:
    """The first value that differs; or why there is none."""
    try:
        traced, expected = model.traced(against, backend, options)
        with progress("looking for the first value that differs", 4 + len(traced.points).bit_length()) as advance:
            bisection = Bisection(traced, expected, tolerance, advance)
            first = bisection.first()
            if first is None:
                return None, ("each output agrees when the model is cut behind it, with nothing else to compute: the "
                              "difference is one of how the whole is compiled")
            found = bisection.described(first)
    except NGraphError as error:
        return None, f"the model can't be cut into parts: {error}"
    return found.with_differing(model.differing_weights(found.parameters)), None


def _model(model: Any, arrays: Mapping[str, Any], shapes: Mapping[str, Sequence[int]], params: Any,
           reference_params: Any, dtypes: Mapping[str, str], backend: str, seed: int) -> Model:
    kind, model = kind_of(model)
    if kind in (Kind.COMPILED, Kind.PACKAGE):
        raise ConfigError(f"found a {kind.value}, which has none of the model's values: verify the model itself")
    if kind in (Kind.GRAPH, Kind.TEXT):
        if shapes or dtypes:
            raise ConfigError("shapes and dtypes are for models; those of a graph are in its types")
        graph = parse_graph(model) if kind is Kind.TEXT else model
        return GraphModel(graph, _by_name(params), _by_name(reference_params), arrays, seed)
    if kind in (Kind.SYMBOL, Kind.BLOCK):
        from ngraph_mxnet.verifying.symbols import symbol_model

        file = os.fspath(model) if isinstance(model, (str, os.PathLike)) else ""
        return symbol_model(model, file, params, reference_params, shapes, dtypes, arrays, seed, backend)
    if params is not None or dtypes:
        raise ConfigError("params and dtypes are for symbols; an ONNX model holds its weights, and says its inputs' "
                          "types")
    from ngraph_mxnet.verifying.onnx_models import OnnxModel

    return OnnxModel(model, reference_params, shapes, arrays, seed)


def _by_name(arrays: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    return {name: as_array(array, f"weight {name!r}") for name, array in (arrays or {}).items()}


def _arrays(inputs: Any) -> dict[str, Any]:
    """By name, or as `#0`, `#1`, ...; a sequence stays a list."""
    if inputs is None:
        return {}
    if not isinstance(inputs, Mapping):
        inputs = {f"#{place}": array for place, array in
                  enumerate(inputs if isinstance(inputs, (list, tuple)) else [inputs])}
    return {name: array if isinstance(array, (list, tuple)) else as_array(array, f"input {name}")
            for name, array in inputs.items()}


def _reference(model: Model, against: str | None) -> str:
    possible = [INTERPRETER] if model.framework is None else [model.framework, INTERPRETER]
    if against is None:
        return model.default_reference()
    if against not in possible:
        raise ConfigError(f"against: found {against!r}, expected one of {', '.join(possible)} for such a model")
    return against


def _tensor(name: str, array: Any) -> np.ndarray:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise UnsupportedError(f"output {name!r} is no tensor of numbers, and only such are compared")
    return array


def _title(model: Any) -> str:
    if isinstance(model, (str, os.PathLike)):
        return Path(model).name
    return getattr(model, "name", "") or type(model).__name__


def _told(model: Model, seed: int) -> list[str]:
    """Where the inputs are from."""
    return [f"{name} {array.dtype}{list(array.shape)}, {f'random of seed {seed}' if name in model.drawn else 'given'}"
            if isinstance(array, np.ndarray) else f"{name}, given" for name, array in model.inputs.items()]
