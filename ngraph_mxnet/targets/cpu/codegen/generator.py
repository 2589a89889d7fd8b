"""Collects the generated kernels of one compilation and gets their code: from memory, from disk, or made."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ngraph_mxnet.base import config
from ngraph_mxnet.base.forks import ForkSafeLock, Recent
from ngraph_mxnet.program.cache import get_or_make
from ngraph_mxnet.targets.cpu.codegen.spec import LoopKernel
from ngraph_mxnet.targets.cpu.microkernels.variants import Isa

logger = config.logger(__name__)

_MOST_MODULES = 64
"""Modules that stay in memory although no Program uses them any more."""


class Code(NamedTuple):
    """Kernels in this process. `owner` keeps them there."""

    owner: Any
    addresses: dict[str, int]


class Generator:
    """The kernels of one graph, compiled together: one module costs less than several."""

    def __init__(self, isa: Isa) -> None:
        self._isa = isa
        self._kernels: dict[LoopKernel, str] = {}

    def symbol(self, kernel: LoopKernel) -> str:
        """The name of a kernel; equal ones are one."""
        name = f"ng_generated_{len(self._kernels)}__{self._isa}"
        return self._kernels.setdefault(kernel, name)

    @property
    def kernels(self) -> dict[str, LoopKernel]:
        return {name: kernel for kernel, name in self._kernels.items()}

    def code(self) -> Code:
        """The code of all kernels so far."""
        return _load(self.kernels, self._isa) if self._kernels else Code(None, {})


_loaded = Recent(_MOST_MODULES)
_lock = ForkSafeLock()
"""Held while code is made: LLVM's contexts and Numba's compiler are not for two threads at once."""


def _load(kernels: dict[str, LoopKernel], isa: Isa) -> Code:
    key = f"{isa}\n{_sources()}\n" + "\n".join(f"{name}: {kernel}" for name, kernel in kernels.items())
    with _lock:
        found: Code = _loaded.get_or_make(key, lambda: _from_disk(kernels, isa, key))
        return found


def _from_disk(kernels: dict[str, LoopKernel], isa: Isa, key: str) -> Code:
    from ngraph_mxnet.targets.cpu.codegen.emit import build_object, load_object

    origin = "from disk"

    def build() -> bytes:
        nonlocal origin
        origin = f"compiled for {isa}"
        return build_object(kernels, isa)

    code = get_or_make("code", key, build)
    logger.info("%d generated kernels %s", len(kernels), origin)
    return Code(*load_object(code, kernels, isa))


def added_code(names: Iterable[str], isa: Isa) -> Code:
    """The code of kernels that other distributions added, by the names of their records.

    Raises:
        KeyError: nobody added such a kernel.
    """
    with _lock:
        return _added(tuple(sorted(names)), isa)


@functools.cache
def _added(names: tuple[str, ...], isa: Isa) -> Code:
    from ngraph_mxnet.targets.cpu.codegen.emit import build_added, load_object
    from ngraph_mxnet.targets.cpu.kernels import symbol

    logger.info("compiling %s, which other distributions added", ", ".join(names))
    return Code(*load_object(build_added(names, isa), [symbol(name, isa) for name in names], isa))


@functools.cache
def _sources() -> str:
    """Return the text that decides the code beside the descriptions: a hash of our sources, and the compilers'
    versions."""
    from importlib.metadata import version

    hasher = hashlib.sha256()
    folder = Path(__file__).parent.parent
    ops = folder.parent.parent / "ops/elementwise.py"
    for path in sorted((*folder.glob("codegen/*.py"), *folder.glob("kernels/*.py"), folder / "microkernels/target.py",
                        ops)):
        hasher.update(path.read_bytes())
    return f"{hasher.hexdigest()} llvmlite {version('llvmlite')} numba {version('numba')}"
