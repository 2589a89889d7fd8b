"""Shape-generic CPU kernels, compiled ahead of time by Numba (`ngraph_mxnet.targets.cpu.aot`).

Importing the package registers every record in `ALL_KERNELS`, from whichever of its modules. `strided.py` documents the
convention of the elementwise kernels; every other kernel documents what it does in its docstring.
"""

from importlib import import_module
from pathlib import Path

from ngraph_mxnet.targets.cpu.kernels.record import ALL_KERNELS, KernelRecord, symbol

__all__ = ["ALL_KERNELS", "KernelRecord", "symbol"]

for _path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    import_module(f"{__name__}.{_path.stem}")
