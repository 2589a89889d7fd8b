"""Loads the C++ library into MXNet and puts our methods in place of a few of MXNet's.

Cases of `activate`, which may be called any number of times:
* all goes well: the backend NGRAPH is usable;
* the library does not load (file missing, built for another MXNet, refused by libmxnet): one warning says what was
  found, what was expected and what to do. The patches go in all the same and bind natively, because with
  `MXNET_SUBGRAPH_BACKEND=NGRAPH` in the environment libmxnet alone would refuse every bind;
* anything else, such as a package that ours depends on and that is not there: `ActivationError`, and who calls installs
  `native_binds` instead of the patches. Until then nothing is patched.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import os
from pathlib import Path
from types import ModuleType

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.binding import environment
from ngraph_mxnet.bridges.mxnet.training import step
from ngraph_mxnet.registry import TARGETS
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
        from ngraph_mxnet.bridges.mxnet import onnx_export
        from ngraph_mxnet.bridges.mxnet.binding import backward_passes, gluon_patch, symbol_patch, updates
        from ngraph_mxnet.bridges.mxnet.kvstore import patches

        for name in NEEDED_BY_BINDS:
            importlib.import_module(name)
        problem: str | None = None
        try:
            _load_library(mxnet)
        except ActivationError as error:
            problem = str(error)
            warn(f"ngraph_mxnet: {problem}. MXNet runs everything itself.")
        environment.finish_activation(problem)
        symbol_patch.install()
        gluon_patch.install()
        updates.install()
        backward_passes.install()
        onnx_export.install()
        patches.install()
    config.warn_of_misspelt()


def _load_library(mxnet: ModuleType) -> None:
    spec = importlib.util.find_spec(CORE)
    if spec is None or spec.origin is None:
        folder = Path(__file__).parents[3]
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
    step.install(_LIB)
    logger.debug("loaded %s", path)


def _replace_functions(libmxnet: ctypes.CDLL, core: ModuleType) -> None:
    """Versions of arrays tell of every write (csrc/mxnet/mxnet_writers.h); threads take turns (csrc/mxnet/turns.h);
    what is ours as a whole runs past MXNet's op (csrc/mxnet/direct.h)."""
    try:
        core.connect_mxnet(libmxnet._name)
    except RuntimeError as error:
        raise ActivationError(f"{error}; install mxnet=={core.built_for_mxnet}") from error
    for name, address in core.mxnet_replacements():
        setattr(libmxnet, name, ctypes.CFUNCTYPE(ctypes.c_int)(address))
