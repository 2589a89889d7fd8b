"""What regions compile to, as tables on the terminal: how contractions are computed, and the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from ngraph_mxnet.name_pieces import common_prefix
from ngraph_mxnet.rendered import Rendered
from ngraph_mxnet.targets.cpu.planning.memory import MemoryUse
from ngraph_mxnet.targets.cpu.report.describe import Contraction, contractions


@dataclass(frozen=True, repr=False)
class Explained(Rendered):
    """What each of some graphs compiles to. `threads`: as many as a call asks for before experience says otherwise."""

    kernels: list[list[Contraction]]
    memory: list[MemoryUse]
    threads: list[int]

    @classmethod
    def of(cls, compiled: Sequence[Any]) -> Explained:
        """What there is to say of these `targets.cpu.backend.CPUExecutable`s."""
        return cls([contractions(each.main.instructions) for each in compiled], [each.memory for each in compiled],
                   [each.threads for each in compiled])

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __rich__(self) -> Group:
        return Group(kernel_table(self.kernels), memory_table(self.memory),
                     "Threads of a call, at most: " + ", ".join(str(count) for count in self.threads))


def kernel_table(regions: Sequence[Sequence[Contraction]]) -> Table:
    """One row for each contraction of each region."""
    title, nodes = titled("Contractions", [c.node for region in regions for c in region])
    shown = iter(nodes)
    table = Table(title=title, title_justify="left")
    table.add_column("#")
    table.add_column("node", overflow="fold", ratio=1)
    for name in ("algorithm", "kernel", "tile"):
        table.add_column(name, no_wrap=True)
    for name in ("tasks by", "chunk", "tasks", "calls"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, region in enumerate(regions, 1):
        for c in region:
            table.add_row(str(number), next(shown), c.algorithm, c.kernel, c.tile, c.order, str(c.chunk),
                          str(c.tasks), str(c.calls))
    return table


def memory_table(regions: Sequence[MemoryUse]) -> Table:
    """One row for each region."""
    table = Table(title="Memory beside inputs and outputs, MB", title_justify="left")
    table.add_column("#")
    for name in ("all intermediates", "all buffers", "least possible", "planned", "prepared weights"):
        table.add_column(name, justify="right")
    for number, use in enumerate(regions, 1):
        sizes = (use.intermediates, use.separate, use.least, use.planned, use.prepared)
        table.add_row(str(number), *(f"{size / 1e6:.2f}" for size in sizes))
    return table


def titled(title: str, nodes: Sequence[str]) -> tuple[str, list[str]]:
    """Markup for a table with a column of nodes: its title, and the nodes by their framework's names. What all of these
    begin with stands in the title alone, and what those of one row begin with in front of it: `stage1_{conv0 + relu0}`.
    """
    names = [_framework_names(node) for node in nodes]
    prefix = common_prefix([name for row in names for name in row])
    cells = [_joined([name.removeprefix(prefix) for name in row]) or node
             for row, node in zip(names, nodes, strict=True)]
    return title + (f" of {escape(prefix)}" if prefix else ""), [escape(cell) for cell in cells]


def _framework_names(node: str) -> list[str]:
    """`conv0` and `relu0` of `convolution_bias (mx:conv0 Convolution + mx:relu0 Activation)`."""
    inside = node.partition("(")[2].removesuffix(")")
    return [part.partition(":")[2].split(" ")[0] or part for part in inside.split(" + ") if part]


def _joined(names: Sequence[str]) -> str:
    prefix = common_prefix(names)
    rest = " + ".join(name.removeprefix(prefix) for name in names)
    return f"{prefix}{{{rest}}}" if prefix else rest
