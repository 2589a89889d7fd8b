"""Writes the C++ source of the tables in `csrc/kernel_table.h`, for libraries that hold the kernels themselves.

    python -m ngraph_mxnet.targets.cpu.kernel_table --nm nm --output table.cc OBJECT ...
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ngraph_mxnet.package.artefact import ISAS
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS

_PREFIX = "ng_"


def symbols(objects: Sequence[Path], nm: str) -> list[str]:
    """The kernels that the object files define, by name."""
    lines = subprocess.run([nm, "--defined-only", "--extern-only", "--format=posix", *objects], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    return sorted({line.split()[0] for line in lines if line.startswith(_PREFIX)})


def source(kernels: Sequence[str]) -> str:
    """The file's text."""
    arguments = "char* const*, const std::int64_t*, const double*, std::int64_t, std::int64_t"
    declared = "\n".join(f"void {name}({arguments});" for name in kernels)
    named = "\n".join(f'    {{"{name}", {name}}},' for name in kernels)
    sets = "\n".join(f'    {{"{isa}", {1 + ISAS.index(isa)}, "{" ".join(needs)}"}},' for isa, needs in NEEDS.items())
    return f"""#include "kernel_table.h"

extern "C" {{
{declared}
}}

namespace ngraph_mxnet {{

const NamedKernel kKernels[] = {{
{named}
}};
const std::size_t kKernelCount = sizeof kKernels / sizeof kKernels[0];
const InstructionSet kInstructionSets[] = {{
{sets}
}};
const std::size_t kInstructionSetCount = sizeof kInstructionSets / sizeof kInstructionSets[0];

}}  // namespace ngraph_mxnet
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("objects", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    options.output.write_text(source(symbols(options.objects, options.nm)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
