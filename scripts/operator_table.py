#!/usr/bin/env python3
"""Write docs/operators.md: which MXNet operators we lower, with what, and what stays with MXNet and why.

It is made of the rules (`frontends/mxnet/rules`), the operators' names, the installed MXNet's registry, which knows
their parameters, and the conformance table (`tests/conformance`), whose records are what is tested.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections import Counter, defaultdict
from pathlib import Path

if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()  # before what needs the packages installed

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "tests", ROOT / "tests" / "conformance"):
    sys.path.insert(0, str(folder))

import ngraph_mxnet  # noqa: E402, F401  # isort: skip  # lets MXNet 1.9.1 import on NumPy >= 1.24
from families import LEFT as LEFT_ROWS  # noqa: E402
from families import RECORDS  # noqa: E402
from mxnet.base import _LIB, check_call, py_str  # noqa: E402
from mxnet_registry import operator  # noqa: E402

from ngraph_mxnet.frontends.mxnet.attrs import aliases, canonical  # noqa: E402
from ngraph_mxnet.frontends.mxnet.rules.registry import Rule, all_rules, why_left  # noqa: E402

PAGE = ROOT / "docs" / "operators.md"
#: What no graph of a model contains.
_OTHER = ("_backward_", "_set_value", "_CachedOp", "_NoGradient", "_NDArray", "_Native", "_CustomFunction", "_copyto",
          "_CrossDeviceCopy", "NGraphSubgraphOp")

TEXT = """# Operators

This page lists MXNet 1.9.1's operators under NGRAPH. It is generated: `scripts/operator_table.py` writes it from the
rules (`ngraph_mxnet/frontends/mxnet/rules`), MXNet's registry and the conformance table (`tests/conformance`).

A rule serves an operator under all its names. The `_sparse_` forms need dense inputs.

* *Parameters* are all that the operator has in MXNet's registry.
* *Element types* are those that the operator's data may have. Types in parentheses are stored so and computed in f32.
* *Records* counts the operator's rows in the conformance table. A record applies the operator with random shapes, types
  and parameters. The tests compare it with MXNet on the interpreter and on the CPU backend, with and without codegen.
* The last column names parameters without effect and calls without support.

A call that a rule or a backend does not support leaves the node with MXNet. `ngraph_mxnet.explain` gives the reason for
each node of a model.

## Lowered: {lowered} operators

{table}

## Left to MXNet on purpose

A model that has one of these operators is partitioned around it. Those that draw random numbers have rules for models
that MXNet does not run ([migration.md](migration.md#random-numbers)).

{left}
"""


def parameters(op: str) -> list[str]:
    """The names of an operator's parameters in MXNet's registry, its tensors left out."""
    return [parameter.name for parameter in operator(op).parameters if not parameter.is_tensor]


def registered() -> list[str]:
    """The canonical names of all operators that the installed MXNet has."""
    count, names = ctypes.c_uint(), ctypes.POINTER(ctypes.c_char_p)()
    check_call(_LIB.MXListAllOpNames(ctypes.byref(count), ctypes.byref(names)))
    return sorted({canonical(py_str(names[i])) for i in range(count.value)})


def tested() -> Counter[str]:
    """The number of records of each operator in the conformance table."""
    return Counter(canonical(record.op) for record in RECORDS)


def _types(rule: Rule) -> str:
    """What the rule takes; those in parentheses are computed in f32."""
    plain = " ".join(name for name in rule.types.elements if name not in rule.types.in_f32)
    widened = " ".join(name for name in rule.types.elements if name in rule.types.in_f32)
    return f"{plain} ({widened})" if widened else plain


def _limits(rule: Rule, op: str) -> str:
    """The table's rows of what is left, and what the rule leaves out of account."""
    rows = dict.fromkeys(row.reason for row in LEFT_ROWS if canonical(row.op) == op)
    own = [f"`{name}`" for name in rule.ignored if name in parameters(op)]
    return _cell("; ".join([*rows, *([f"{', '.join(own)}: no effect at inference"] if own else [])]))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _names(op: str) -> str:
    return ", ".join([f"**{op}**".replace("_", "\\_"), *(f"`{name}`" for name in aliases(op))])


def table() -> str:
    """A row for each operator that has a rule."""
    known, drawn = set(registered()), tested()
    lines = ["| operator and aliases | parameters | element types | records | not supported, or without effect |",
             "|---|---|---|---:|---|"]
    for op, rule in sorted(all_rules().items(), key=lambda item: item[0].lstrip("_").lower()):
        values = ", ".join(f"`{name}`" for name in parameters(op)) if op in known else "not in this MXNet"
        lines.append(f"| {_names(op)} | {values} | {_types(rule)} | {drawn[op] or ''} | {_limits(rule, op)} |")
    return "\n".join(lines)


def page() -> str:
    """The whole text."""
    rules = all_rules()
    groups: dict[str, list[str]] = defaultdict(list)
    for op in registered():
        if op not in rules and not op.startswith(_OTHER):
            groups[why_left(op) or "no reason is on record"].append(f"`{op}`")
    left = [f"* {reason}: {', '.join(names)}" for reason, names in sorted(groups.items())]
    return TEXT.format(lowered=len(rules), table=table(), left="\n".join(left))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
