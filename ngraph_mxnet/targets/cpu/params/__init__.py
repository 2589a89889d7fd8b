"""The kernels' records, a family a module: every operand, number and task of a kernel by name.

Those of the microkernels stand with these.
"""

from importlib import import_module
from pathlib import Path

from ngraph_mxnet.targets.cpu.microkernels import params  # noqa: F401
from ngraph_mxnet.targets.cpu.params.record import KERNELS, Kernels, Params

__all__ = ["KERNELS", "Kernels", "Params"]

for _path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
    import_module(f"{__name__}.{_path.stem}")
