#!/usr/bin/env python3
"""Write docs/environment.md, docs/nnp-devices.md and the table of instructions in docs/nnp.md from the code."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from nnp_tables import device_tables, instruction_table, lowering_table, support_table  # noqa: E402

from ngraph_mxnet.base import config  # noqa: E402

TEXT = """# Environment variables

The package reads a variable when it needs the value, unless the table says otherwise. So a program may set variables
before the first bind. In a script a value that is not allowed counts as unset, and a warning says so. On the command
line such a value is an error. This page is generated: edit `ngraph_mxnet/base/variables.py` and run
`scripts/update_docs.py`.

{table}
## MXNet's own variables that matter here
| variable | meaning |
|---|---|
| `MXNET_SUBGRAPH_BACKEND` | `NGRAPH` (in any case): this package. `NONE`, `MKLDNN` or unset: MXNet alone. |
| `MXNET_SUBGRAPH_VERBOSE` | `0` hides MXNet's line "Subgraph backend NGRAPH is activated". |
"""
DEVICES = """# The numbers of the simulated NNPs

This page lists the numbers that [the simulator](nnp.md) has of each product, with their sources. A number is
`published`, `derived` from published ones, or a `guess` whose source gives the grounds. No number was fitted to a
benchmark. `load_device(name, {{path: value}})` gives a device with other numbers. This page is generated: edit
`ngraph_mxnet/targets/nnp/devices/` or `ngraph_mxnet/targets/nnp/places.py` and run `scripts/update_docs.py`.

{tables}
## The numbers of lowering
These numbers belong to the compiler, not to a device. They have no source: each was set by judgement.
[nnp-validation.md](nnp-validation.md) says how much they matter for MLPerf's ResNet-50.

{lowering}
## What Intel's software ran on the NNP-I
Glow's backend NNPI took these node kinds (pytorch/glow, commit 05dd99b, `lib/Backends/NNPI/NNPI.cpp`). The table says
of which of them our ops are made. Real numbers are f16. An op that is not in the table had no node kind. So it is with
NonMaxSuppression, argsort other than TopK, GRU, a bilinear resize, a slice with steps, and a transposed convolution.
Nothing of the kind is published of the NNP-T.

{support}"""


def main() -> None:
    (ROOT / "docs" / "environment.md").write_text(TEXT.format(table=config.docs_table()), encoding="utf-8")
    devices = DEVICES.format(tables=device_tables(), lowering=lowering_table(),
                             support=support_table())
    (ROOT / "docs" / "nnp-devices.md").write_text(devices, encoding="utf-8")
    page = ROOT / "docs" / "nnp.md"
    before, _, rest = page.read_text(encoding="utf-8").partition("| op | units |")
    after = rest.partition("\n\n")[2]
    page.write_text(f"{before}{instruction_table()}\n{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
