"""Loads the C++ library into MXNet and puts our methods in place of a few of MXNet's.

Cases of `activate`, which may be called any number of times:
* all goes well: the backend NGRAPH is usable;
* the library does not load (file missing, built for another MXNet, refused by libmxnet): one warning says what was
  found, what was expected and what to do. The patches go in all the same and bind natively, because with
  `MXNET_SUBGRAPH_BACKEND=NGRAPH` in the environment libmxnet alone would refuse every bind;
* anything else, such as a package that ours depends on and that is not there: `ActivationError`, and who calls turns
  to `environment.bind_natively_from_now_on` instead of the patches. Until then nothing is patched.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import logging
import os
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ngraph_mxnet.base import config
from ngraph_mxnet.base.forks import ForkSafeLock
from ngraph_mxnet.base.registry import TARGETS
from ngraph_mxnet.plugin.binding import environment
from ngraph_mxnet.plugin.training import steps
from ngraph_mxnet_autoload.messages import warn

logger = logging.getLogger("ngraph_mxnet")

CORE = "ngraph_mxnet._core"
NEEDED_BY_BINDS = tuple(place.load.partition(":")[0] for place in TARGETS.values() if place.load)
"""Imported with MXNet, so that the first bind of a model that was bound before need not."""


class ActivationError(Exception):
    """Why the backend is not usable; the text tells the user what to do."""


def activate(mxnet: ModuleType) -> None:
    """Make the backend usable in this process, or warn once and leave everything to MXNet."""
    with environment.lock:
        if environment.activated():
            return
        from ngraph_mxnet.plugin.binding import backward_passes, clipping, executor, gluon_patch, updates
        from ngraph_mxnet.plugin.kvstore import patches

        for name in NEEDED_BY_BINDS:
            importlib.import_module(name)
        problem: str | None = None
        try:
            _load_library(mxnet)
        except ActivationError as error:
            problem = str(error)
            warn(f"ngraph_mxnet: {problem}. MXNet runs everything itself.")
        environment.finish_activation(problem)
        executor.install_binds()
        gluon_patch.install()
        updates.install()
        clipping.install()
        backward_passes.install()
        install_onnx_export()
        patches.install()
    config.warn_of_misspelt()


def _load_library(mxnet: ModuleType) -> None:
    spec = importlib.util.find_spec(CORE)
    if spec is None or spec.origin is None:
        folder = Path(__file__).parents[2]
        raise ActivationError(
            f"found no library {folder / '_core*.so'}; reinstall "
            "ngraph_mxnet, or in a checkout run `pip install -e .`"
        )
    path = os.path.abspath(spec.origin)
    try:
        core = importlib.import_module(CORE)
    except ImportError as error:
        raise ActivationError(f"{path} does not load: {error}; reinstall ngraph_mxnet") from error
    if core.built_for_mxnet != mxnet.__version__:
        raise ActivationError(
            f"{path} was built for mxnet {core.built_for_mxnet}, found mxnet "
            f"{mxnet.__version__}; install mxnet=={core.built_for_mxnet}, or build "
            "ngraph_mxnet against the installed one"
        )
    from mxnet.base import _LIB, MXNetError, check_call, mx_uint

    try:
        # mx.library.load would then also create all of mx.nd and mx.sym anew, which replaces functions that
        # scripts have imported or wrapped, and takes longer than the rest of the activation.
        check_call(_LIB.MXLoadLib(os.fsencode(path), mx_uint(0)))
    except MXNetError as error:
        raise ActivationError(f"libmxnet refuses {path}: {error}; reinstall ngraph_mxnet") from error
    _replace_functions(_LIB, core)
    steps.install(_LIB)
    logger.debug("loaded %s", path)


def _replace_functions(libmxnet: ctypes.CDLL, core: ModuleType) -> None:
    """Versions of arrays tell of every write (csrc/mxnet/mxnet_writers.h); threads take turns (csrc/mxnet/engine.h);
    what is ours as a whole runs past MXNet's op (csrc/mxnet/direct.h)."""
    try:
        core.connect_mxnet(libmxnet._name)
    except RuntimeError as error:
        raise ActivationError(f"{error}; install mxnet=={core.built_for_mxnet}") from error
    for name, address in core.mxnet_replacements():
        setattr(libmxnet, name, ctypes.CFUNCTYPE(ctypes.c_int)(address))


OPSET = 13
"""The newest version of the operators that MXNet 1.9.1 has converters for."""
IR_VERSION = 8
"""The lowest version of the file format that has these operators; every later onnx reads it."""

_NUMPY_KINDS = ("FLOAT", "FLOAT16", "DOUBLE", "BOOL", "INT8", "UINT8", "INT32", "INT64")
_lock = ForkSafeLock()


def install_onnx_export() -> None:
    """Put our `export_model` wherever MXNet shows its own."""
    places = [("mxnet.onnx", "export_model"), ("mxnet.onnx.mx2onnx", "export_model"),
              ("mxnet.contrib.onnx", "export_model_")]
    for name, attribute in places:
        module = sys.modules.get(name)
        stock = getattr(module, attribute, None)
        if stock is not None and not hasattr(stock, "__wrapped__"):
            setattr(module, attribute, _completed(stock))


def _completed(stock: Any) -> Any:
    @functools.wraps(stock)
    def export_model(*args: Any, **kwargs: Any) -> Any:
        try:
            import onnx  # noqa: F401
        except ImportError:
            return stock(*args, **kwargs)  # which says what to install
        with _lock, _former_onnx():
            path = stock(*args, **kwargs)
        _complete(path)
        return path

    return export_model


def _mapping() -> types.ModuleType:
    """The two tables of the former `onnx.mapping` that the exporter reads."""
    import onnx

    module = types.ModuleType("onnx.mapping")
    to_numpy = {number: onnx.helper.tensor_dtype_to_np_dtype(number) for number in onnx.helper.get_all_tensor_dtypes()
                if onnx.TensorProto.DataType.Name(number) in _NUMPY_KINDS}
    module.TENSOR_TYPE_TO_NP_TYPE = to_numpy  # type: ignore[attr-defined]
    module.NP_TYPE_TO_TENSOR_TYPE = {kind: number for number, kind in to_numpy.items()}  # type: ignore[attr-defined]
    return module


def _convert_weight_or_input(node: dict[str, Any], **context: Any) -> Any:
    """The exporter's converter of a graph's variables, with weights as bytes: [value info], (element type,)."""
    import onnx

    name = node["name"]
    if context["is_input"]:
        number, shape = context["in_type"], context["in_shape"]
        kind = onnx.helper.tensor_dtype_to_np_dtype(number)
    else:
        weight = context["weights"][name]
        context["initializer"].append(onnx.numpy_helper.from_array(weight, name))
        kind, shape = weight.dtype, weight.shape
        number = onnx.helper.np_dtype_to_tensor_dtype(kind)
    return [onnx.helper.make_tensor_value_info(name, number, shape)], (kind,)


@contextmanager
def _former_onnx() -> Iterator[None]:
    """While it lasts, onnx looks as MXNet's exporter expects; the graph is checked later, as a whole model."""
    import onnx
    import onnx.checker
    import onnx.defs
    from mxnet.onnx.mx2onnx._export_onnx import MXNetGraph

    with ExitStack() as stack:
        if not hasattr(onnx, "mapping"):
            mapping = _mapping()
            sys.modules["onnx.mapping"] = mapping
            stack.callback(sys.modules.pop, "onnx.mapping", None)
            _replace(stack, onnx, "mapping", mapping)
        _replace(stack, onnx.defs, "onnx_opset_version", lambda: OPSET)
        _replace(stack, onnx.checker, "check_graph", lambda *args, **kwargs: None)
        for converters in MXNetGraph.registry_.values():
            if "null" in converters:
                stack.callback(converters.__setitem__, "null", converters["null"])
                converters["null"] = _convert_weight_or_input
        yield


def _replace(stack: ExitStack, owner: Any, name: str, value: Any) -> None:
    if hasattr(owner, name):
        stack.callback(setattr, owner, name, getattr(owner, name))
    else:
        stack.callback(delattr, owner, name)
    setattr(owner, name, value)


def _complete(path: str) -> None:
    """Weights become initialisers only, and the file says what it is made of.

    Raises:
        onnx.checker.ValidationError: the exporter wrote what ONNX does not allow.
    """
    import onnx

    model = onnx.load(path)
    initialisers = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initialisers]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    del model.opset_import[:]
    model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    model.ir_version = IR_VERSION
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
