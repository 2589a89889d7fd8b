"""Makes `import mxnet` end with the backend NGRAPH registered, in scripts that were never changed.

Two ways in:
* a `.pth` file imports this package at interpreter start, if the environment names our backend;
* `import ngraph_mxnet`, before or after `import mxnet`.

Cases of `install`:
* mxnet is not imported yet: a finder waits for it in `sys.meta_path`;
* mxnet is imported: the backend is activated at once;
* mxnet is being imported right now (it, or a thread beside us, got here in the middle): nothing is done if
  our finder is in place, for that import will end with the activation; without the finder the activation
  can't be placed, and the user is told so.

This module runs at interpreter start, so it imports nothing but `sys`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

PACKAGE = "mxnet"


def install() -> None:
    """Activate the backend now if mxnet is imported, else as soon as it is; calling it twice is harmless."""
    module = sys.modules.get(PACKAGE)
    if module is None:
        if not any(isinstance(finder, MXNetFinder) for finder in sys.meta_path):
            sys.meta_path.insert(0, MXNetFinder())
    elif not getattr(getattr(module, "__spec__", None), "_initializing", False):
        _activate(module)
    elif not any(isinstance(finder, MXNetFinder) for finder in sys.meta_path):
        _warn(
            "ngraph_mxnet was imported while mxnet was being imported; import it before or after mxnet, "
            "else the backend NGRAPH stays off"
        )


class MXNetFinder:
    """Finds mxnet as the other finders do, and wraps its loader.

    It stays in place until an import of mxnet succeeds: `importlib.util.find_spec("mxnet")`, a failed import
    and a later `sys.path` change must not lose the activation.
    """

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != PACKAGE:
            return None
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            if isinstance(finder, MXNetFinder) or find_spec is None:
                continue
            spec = find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = ActivatingLoader(spec.loader)
                return spec
        return None


class ActivatingLoader:
    """Runs the NumPy shim, the real loader, then the activation."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Tools that read sources or data files through the module must meet the real loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        _install_numpy_shim()
        self._loader.exec_module(module)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, MXNetFinder)]
        _activate(module)


def _install_numpy_shim() -> None:
    try:
        from ngraph_mxnet.mxnet_bridge import numpy_shim

        numpy_shim.install()
    except Exception as error:
        _warn(f"the NumPy shim could not be installed ({error!r}); mxnet may fail to import on this NumPy")


def _activate(module: ModuleType) -> None:
    """Whatever goes wrong here is ours alone: the user's `import mxnet` must succeed."""
    try:
        from ngraph_mxnet.mxnet_bridge import activation

        activation.activate(module)
    except Exception as error:
        _warn(f"the backend NGRAPH could not be activated ({error!r}); MXNet runs everything itself")


def _warn(message: str) -> None:
    import warnings

    warnings.warn(message, RuntimeWarning, stacklevel=2)
