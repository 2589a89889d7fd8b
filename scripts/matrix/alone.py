"""`ngraph-run`, and then a failure if MXNet or the compiler is in the process.

    python -S -m matrix.alone MODEL.ngraph [option of ngraph-run ...]

-S leaves out what activates the backend at each start of Python; PYTHONPATH says where NumPy and ngraph_runtime are.
Exit status: that of ngraph-run; 3 if something is there that should not be.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ngraph_runtime.run import main

_MODULES = ("mxnet", "ngraph_mxnet", "ngraph_mxnet_autoload", "onnx")
_LIBRARIES = ("libmxnet", "libngraph_kernels", "/ngraph_mxnet/")


def strangers() -> list[str]:
    """Modules and libraries of MXNet, ONNX and the compiler in this process."""
    mapped = {line.split(maxsplit=5)[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return sorted([name for name in sys.modules if name.partition(".")[0] in _MODULES]
                  + [path for path in mapped if any(part in path for part in _LIBRARIES)])


if __name__ == "__main__":
    status = main()
    if found := strangers():
        print(f"error: this process holds {', '.join(found[:5])}", file=sys.stderr)
        status = 3
    sys.exit(status)
