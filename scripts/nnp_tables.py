"""The tables of docs/nnp.md and docs/nnp-devices.md, from what the code says."""

from __future__ import annotations

from dataclasses import fields

from ngraph_mxnet.ir.types import REQUIRED, Attribute
from ngraph_mxnet.targets.nnp.device import Number, devices, load_device
from ngraph_mxnet.targets.nnp.places import Guesses
from ngraph_mxnet.targets.nnp.program import OPS
from ngraph_mxnet.targets.nnp.support import RUNS


def instruction_table() -> str:
    """One row an op: units, attributes with their defaults, what it does."""
    rows = ["| op | units | attributes | what it does |", "|---|---|---|---|"]
    for op in OPS.values():
        attrs = ", ".join(f"`{name}`" + _default(kind) for name, kind in op.schema.items()) or "none"
        rows.append(f"| `{op.name}` | {', '.join(op.units)} | {attrs} | {op.doc} |")
    return "\n".join(rows) + "\n"


def _default(kind: Attribute) -> str:
    if kind.default is REQUIRED:
        return ""
    return f" = {str(kind.default).lower() if isinstance(kind.default, bool) else kind.default}"


def device_tables() -> str:
    """For each product, by power mode, what follows from its numbers; then all numbers with their sources."""
    rows = ["| device | clock | peak | power | engines | sram an engine | DRAM |", "|---|---|---|---|---|---|---|"]
    products: dict[str, dict[str, Number]] = {}
    for product, modes in devices().items():
        for mode in modes:
            device = load_device(f"{product}:{mode}")
            peaks = ", ".join(f"{element} {2 * device.peak(element) / 1e12:.4g}T" for element in device.grids)
            sram, dram = device.memories["sram"], device.memories["dram"]
            rows.append(f"| `{device.name}` | {device.clock / 1e6:.1f} MHz | {peaks} | {device.power:g} W "
                        f"| {device.engines} | {sram.size / 2**20:g} MiB, {sram.bandwidth / 1e9:.1f} GB/s "
                        f"| {dram.size / 2**30:g} GiB, {dram.bandwidth / 1e9:.1f} GB/s |")
            products[device.name] = device.numbers
    shared: dict[tuple[str, Number], list[str]] = {}
    for name, numbers in products.items():
        for path, number in numbers.items():
            shared.setdefault((path, number), []).append(name)
    rows += ["", "| number | devices | value | kind | source |", "|---|---|---|---|---|"]
    for (path, number), names in sorted(shared.items(), key=lambda entry: (entry[0][0], entry[1])):
        rows.append(f"| `{path}` | {_devices(names, list(products))} | {number.value:g} {number.unit} | {number.kind} "
                    f"| {number.source} |")
    return "\n".join(rows) + "\n"


def lowering_table() -> str:
    """One row a guess of lowering: value and meaning."""
    rows = ["| number | value | where, and what it means |", "|---|---|---|"]
    rows += [f"| `{each.name}` | {_value(each.default)} {each.metadata['unit']} | {each.metadata['meaning']} |"
             for each in fields(Guesses)]
    return "\n".join(rows) + "\n"


def support_table() -> str:
    """One row a set of facts: ops that Intel's software ran on the NNP-I, Glow's node kinds, integers beside reals."""
    rows = ["| op | Glow's node kinds | integers |", "|---|---|---|"]
    by_facts: dict[tuple[str, str], list[str]] = {}
    for op, runs in sorted(RUNS.items()):
        if runs.kinds:
            by_facts.setdefault((runs.kinds, runs.integers), []).append(op)
    rows += [f"| {', '.join(f'`{op}`' for op in ops)} | {', '.join(kinds.split())} | {', '.join(integers.split())} |"
             for (kinds, integers), ops in by_facts.items()]
    return "\n".join(rows) + "\n"


def _value(value: object) -> str:
    return ", ".join(f"{part:g}" for part in (value if isinstance(value, tuple) else (value,)))


def _devices(names: list[str], known: list[str]) -> str:
    """`names`, shortened where they are all of a family or of a product."""
    shown: list[str] = []
    for prefix in ("nnp-i", "nnp-t", *dict.fromkeys(name.split(":")[0] for name in known)):
        family = [name for name in known if name.startswith(prefix)]
        if set(family) <= set(names) - {name for name in known if any(name.startswith(short) for short in shown)}:
            shown.append(prefix)
    rest = [name for name in names if not any(name.startswith(short) for short in shown)]
    return ", ".join([*shown, *rest])
