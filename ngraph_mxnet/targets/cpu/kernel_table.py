"""Writes the C++ source of the tables in `csrc/core/kernel_table.h`, for libraries that hold the kernels themselves.

    python -m ngraph_mxnet.targets.cpu.kernel_table --nm nm --output table.cc OBJECT ...
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ngraph_mxnet.program.artefact import isa_number
from ngraph_mxnet.targets.cpu.checks import Check, Op, made
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS
from ngraph_mxnet.targets.cpu.params import KERNELS

_PREFIX = "ng_"


def symbols(objects: Sequence[Path], nm: str) -> list[str]:
    """The kernels that the object files define, by name; without those that no Program calls."""
    lines = subprocess.run([nm, "--defined-only", "--extern-only", "--format=posix", *objects], check=True,
                           capture_output=True, text=True).stdout.splitlines()
    found = sorted({line.split()[0] for line in lines if line.startswith(_PREFIX)})
    return [symbol for symbol in found if symbol.removeprefix(_PREFIX).rpartition("__")[0] in KERNELS]


def source(kernels: Sequence[str]) -> str:
    """The file's text."""
    checks, numbers = made(kernels)
    arguments = "char* const*, const std::int64_t*, const double*, std::int64_t, std::int64_t"
    declared = "\n".join(f"void {name}({arguments});" for name in kernels)
    sets = _rows(f'"{isa}", {isa_number(isa)}, "{" ".join(needs)}"' for isa, needs in NEEDS.items())
    same = "\n".join(f"static_assert(static_cast<int>(Step::k{_camel(op.name)}) == {op.value});" for op in Op)
    # By offsets, not addresses: each of those is 24 bytes more of what the loader reads.
    names, starts = sorted(numbers), [0]
    for name in names:
        starts.append(starts[-1] + len(name) + 1)
    rows = _rows(f"{{{_functions(name, numbers[name])}}}, {start}, {{{', '.join(str(n or 0) for n in numbers[name])}}}"
                 for name, start in zip(names, starts, strict=False))
    return f"""#include "core/kernel_table.h"

extern "C" {{
{declared}
}}

namespace ngraph_mxnet {{

{same}
const char kKernelNames[] =
{chr(10).join(f'    "{name}{chr(92)}0"' for name in names)};
const NamedKernel kKernels[] = {{
{rows}
}};
const std::size_t kKernelCount = sizeof kKernels / sizeof kKernels[0];
const InstructionSet kInstructionSets[] = {{
{sets}
}};
const Check kKernelChecks[] = {{
{_rows(map(_check, checks.rows))}
}};
const std::uint8_t kCheckCode[] = {{{", ".join(map(str, checks.code))}}};
const std::int64_t kCheckNumbers[] = {{{", ".join(map(str, checks.numbers))}}};

}}  // namespace ngraph_mxnet
"""


def _rows(rows: Iterable[str]) -> str:
    return "\n".join(f"    {{{row}}}," for row in rows)


def _camel(name: str) -> str:
    return name.title().replace("_", "")


def _functions(name: str, numbers: Sequence[int | None]) -> str:
    return ", ".join("nullptr" if number is None else f"{_PREFIX}{name}__{isa}"
                     for isa, number in zip(NEEDS, numbers, strict=True))


def _check(check: Check) -> str:
    return (f"{check.tensors}, {check.ints}, {check.sizes}, {check.floats}, {check.written}, {check.kept}, "
            f"{check.code}")


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
