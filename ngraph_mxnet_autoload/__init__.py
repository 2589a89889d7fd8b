"""Serves every `import mxnet` of a Python in which ngraph_mxnet is installed, in scripts that were never changed.

The `.pth` file of the same name imports this package at interpreter start; `import ngraph_mxnet` does the same where
no `.pth` file is read (`python -S`, `pip install --target`). Then a finder waits for mxnet. Cases of its import:
* always: it finds the names that it misses in current NumPy and Python, see `numpy_shim`;
* the environment names our backend, or `ngraph_mxnet` was imported: it ends with the backend NGRAPH activated;
* the environment names a backend that there is not: a warning tells the name that may have been meant.

Cases of `activate`, which `import ngraph_mxnet` calls if mxnet is installed:
* mxnet is not imported yet: the finder does it;
* mxnet is imported: the backend is activated at once;
* mxnet is being imported right now (it, or a thread beside us, got here in the middle): nothing is done if our finder
  is in place, for that import will end with the activation; without the finder the activation can't be placed, and the
  user is told so.

This package stands beside ngraph_mxnet, for to be there at each start must cost nothing: here only `sys` is imported,
not even `__future__`.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

PACKAGE = "mxnet"
_wanted = False


def install() -> None:
    """Wait for `import mxnet`; calling it twice is harmless."""
    if not _installed():
        sys.meta_path.insert(0, MXNetFinder())


def activate() -> None:
    """Activate the backend now if mxnet is imported, else as soon as it is, whatever the environment names."""
    global _wanted
    _wanted = True
    module = sys.modules.get(PACKAGE)
    if module is None:
        install()
    elif not getattr(getattr(module, "__spec__", None), "_initializing", False):
        install()  # for what of mxnet is imported later
        _activate(module)
    elif not _installed():
        _warn(
            "ngraph_mxnet was imported while mxnet was being imported; import it before or after mxnet, "
            "else the backend NGRAPH stays off"
        )


def _installed() -> bool:
    return any(isinstance(finder, MXNetFinder) for finder in sys.meta_path)


class MXNetFinder:
    """Finds mxnet and its modules as the other finders do, and wraps their loaders."""

    def find_spec(self, name: str, path: "Any" = None, target: "ModuleType | None" = None) -> "ModuleSpec | None":
        if name != PACKAGE and not name.startswith("mxnet."):
            return None
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            if isinstance(finder, MXNetFinder) or find_spec is None:
                continue
            spec = find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = MXNetLoader(spec.loader)
                return spec
        return None


class MXNetLoader:
    """Runs the real loader, with the names of older NumPy; after mxnet itself the activation."""

    def __init__(self, loader: "Any") -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._loader, name)

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        return self._loader.create_module(spec)

    def exec_module(self, module: "ModuleType") -> None:
        # Tools that read sources or data files through the module must meet the real loader.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._run(module)
        if module.__name__ == PACKAGE:
            _after_import(module)

    def _run(self, module: "ModuleType") -> None:
        try:
            from ngraph_mxnet_autoload.numpy_shim import names_for_mxnet
        except Exception as error:
            _warn(f"the NumPy shim does not load ({error!r}); mxnet may fail to import on this NumPy")
            self._loader.exec_module(module)
        else:
            with names_for_mxnet():
                self._loader.exec_module(module)


def _after_import(module: "ModuleType") -> None:
    import os

    from ngraph_mxnet_autoload.names import BACKEND, MXNET_BACKENDS, VARIABLE

    value = os.environ.get(VARIABLE, "")
    if _wanted or value.upper() == BACKEND:
        _activate(module)
    elif value and value not in MXNET_BACKENDS:
        from difflib import get_close_matches

        meant = get_close_matches(value.upper(), (BACKEND, "NONE", "MKLDNN"), 1)
        if meant:
            _warn(f"{VARIABLE}={value}: MXNet has no such backend; did you mean {meant[0]}?")


def _activate(module: "ModuleType") -> None:
    """Whatever goes wrong here is ours alone: the user's `import mxnet` must succeed, and so must every bind."""
    try:
        from ngraph_mxnet.plugin.binding import activation

        activation.activate(module)
    except Exception as error:
        _warn(f"the backend NGRAPH could not be activated ({error!r}); MXNet runs everything itself")
        try:
            from ngraph_mxnet.plugin.binding import environment

            environment.bind_natively_from_now_on(repr(error))
        except Exception:  # the package is in pieces: at least libmxnet must not look for our backend
            _hide_backend()


def _hide_backend() -> None:
    """`os.environ` stays as it is."""
    import os

    from ngraph_mxnet_autoload.names import VARIABLE

    os.putenv(VARIABLE, "")


def _warn(message: str) -> None:
    from ngraph_mxnet_autoload.messages import warn

    warn(message)


install()
