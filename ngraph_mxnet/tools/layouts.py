"""The layouts of facts for people: the tables and sentences that a terminal, a text and a notebook show of each kind.

The rooms below make facts, which are plain data and name their layout. `Facts.shown` finds it here when it is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.base.errors import listed
from ngraph_mxnet.base.rendered import (
    FORMS,
    Facts,
    bold,
    common_prefix,
    counted,
    facts_table,
    jsonable,
    line,
    notice,
    numbered,
    percent,
    plainly,
    short,
    table,
    time_text,
    view,
)
from ngraph_mxnet.program.recorder import phrase

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from ngraph_mxnet.frontends.onnx.explain import OnnxExplanation
    from ngraph_mxnet.frontends.onnx.writer.file import OnnxFile
    from ngraph_mxnet.frontends.verdicts import Partition
    from ngraph_mxnet.plugin.explain import Explanation, TrainingExplanation
    from ngraph_mxnet.plugin.report import Report
    from ngraph_mxnet.program.differences import Difference
    from ngraph_mxnet.program.ranges import RangeExplanation, RangeVerdict
    from ngraph_mxnet.quantisation.session.report import LayerRow
    from ngraph_mxnet.quantisation.session.report import Report as QuantisationReport
    from ngraph_mxnet.tools.audits import Difference as Parting
    from ngraph_mxnet.tools.verifying.report import Diverging, Verification

Parts = Iterable["RenderableType | None"]
"""What is printed, one below the other; None is left out."""
_LAYOUTS: dict[str, Callable[[Any], Parts]] = {}
"""By their names, of which a class of facts gives one as `layout`. Those of kernels, of profiles, of simulations and of
placements are for whatever targets tell in this form."""


def parts_of(facts: Facts) -> Parts:
    """What is shown of these facts."""
    return _LAYOUTS[facts.layout](facts)


def _lays_out(lay_out: Callable[[Any], Parts]) -> Callable[[Any], Parts]:
    _LAYOUTS[lay_out.__name__] = lay_out
    return lay_out


@_lays_out
def plain(found: Facts) -> Parts:
    """A row for each fact."""
    yield facts_table((name, plainly(value)) for name, value in found.to_dict().items())


# ---- what is compiled, and what is not ---------------------------------------------------------------------------


@_lays_out
def partition(found: Partition) -> Parts:
    """MACs are multiply-adds; bytes cross the region's border."""
    left = found.left_by_kind()
    ours = sum(len(region.nodes) for region in found.regions)
    yield bold(f"{ours} of {ours + sum(left.values())} nodes run on {found.backend}, in "
               f"{numbered(len(found.regions), 'region')}")
    known = ["precision {precision}"] * any(region.precision for region in found.regions)
    yield view(found.regions, "# {#}", "operators {ops:ops}", *known, ">nodes {nodes:count}", ">in {inputs:count}",
               ">out {outputs:count}", ">MACs {cost.macs:short}", ">other ops {cost.operations:short}",
               ">bytes {cost.bytes:short}", title="Regions")
    yield _left(left)


def _left(left: Mapping[tuple[str, str], int]) -> Table | None:
    """How many nodes of which operator stay with the framework, and why."""
    return table("operator", ">nodes", "reason", title="Left to MXNet",
                 rows=((op, count, reason) for (op, reason), count in left.items())) if left else None


@_lays_out
def explanation(found: Explanation) -> Parts:
    yield found.partition
    yield from _of_backend(found)


def _of_backend(found: Explanation | OnnxExplanation) -> Parts:
    """What the backend tells of what it runs."""
    yield found.details
    for number, plan in enumerate(found.plans, 1):
        yield bold(f"Region {number}") if len(found.plans) > 1 else None
        yield plan
    yield from map(notice, found.notices)


@_lays_out
def onnx(found: OnnxExplanation) -> Parts:
    yield bold(_onnx_headline(found))
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in found.opsets.items())
    ports = [("inputs", "\n".join(found.inputs)), ("outputs", "\n".join(found.outputs)), ("operator sets", opsets)]
    yield facts_table(ports + ([("precision", found.precision)] if found.precision else []))
    yield _counts("Operators of the model", found.operators)
    yield line("operators without a rule: " + ", ".join(found.unknown)) if found.unknown else None
    if found.ops:
        yield _counts("Ops of the optimised graph", found.ops)
        yield line(f"{short(found.macs)} multiply-adds, {short(found.operations)} other operations, "
                   f"{found.weights / 1e6:.2f} MB of weights")
    yield from _of_backend(found)


def _onnx_headline(found: OnnxExplanation) -> str:
    if found.reason is not None:
        return f"it does not compile for {found.backend}: {found.reason}"
    ops = numbered(sum(found.ops.values()), "op")
    if found.rest is None:
        return f"all {sum(found.operators.values())} nodes run on {found.backend}, as {ops}"
    first = f"its first part runs on {found.backend}, as {ops}; " if found.ops else ""
    return f"{first}what follows is compiled at a call, when the data is there: {found.rest}"


def _counts(title: str, counts: Mapping[str, int]) -> Table:
    found = table(title, rows=[[counted(counts)]])
    found.columns[0].min_width = len(title)
    return found


@_lays_out
def ranges(found: RangeExplanation) -> Parts:
    ours = sum(verdict.reason is None for verdict in found.verdicts)
    fixed = f"; sizes of {found.fixed} more do not change" if found.fixed else ""
    yield bold(f"{ours} of {len(found.verdicts)} are compiled once for a range of sizes{fixed}")
    yield _range_table(found.verdicts)


def _range_table(verdicts: Sequence[RangeVerdict]) -> Table | None:
    return view(verdicts, "output {name}", "inputs that change {inputs:lines}",
                "assumed, and by what {assumptions:lines}", "compiled for each set of shapes because {reason:text}",
                title="Ranges of sizes")


@_lays_out
def training(found: TrainingExplanation) -> Parts:
    yield bold(f"{found.compiled} of {len(found.nodes)} nodes train compiled, {found.saved_bytes} bytes are saved from "
               "forward to backward")
    yield notice(f"Not trained as a whole: {found.whole}") if found.whole is not None else None
    yield view(found.nodes, "node {name}", "operator {op}", "forward {forward}", "backward {backward}",
               "why MXNet {reason:text}", title="Nodes")
    left = [update for update in found.updates if update.reason is not None]
    yield line(f"{len(found.updates) - len(left)} of {len(found.updates)} parameters are updated by one program with "
               f"{', '.join(found.optimizers)}; with other optimizers by MXNet")
    yield from (notice(f"MXNet updates {update.name}: {update.reason}") for update in left)
    if found.buckets:
        yield table("bucket", "gradients", "first", "last", "MB", "ready", rows=(
            (number, len(bucket.gradients), bucket.gradients[0], bucket.gradients[-1], f"{bucket.bytes / 1e6:.1f}",
             f"{bucket.ready:.2f}") for number, bucket in enumerate(found.buckets)),
            title="Sums over processes (dist_sync_ngraph): when buckets are ready, in shares of the "
                  f"{1e3 * found.backward_seconds:.1f} ms of the backward pass")


@_lays_out
def report(found: Report) -> Parts:
    counts = f"{found.calls} calls, {len(found.regions)} compiled regions, {len(found.fallbacks)} fallbacks"
    trained = f", {numbered(len(found.steps), 'compiled training step')}" * bool(found.steps)
    yield bold(counts + trained + (f", {found.updates} compiled updates" if found.updates else ""))
    yield notice(f"Nothing is compiled: {found.problem}") if found.problem is not None else None
    if not (found.calls or found.regions or found.steps or found.left or found.fallbacks or found.problem):
        yield notice("This report is about models that MXNet runs, and so far MXNet had none to compile. A model of "
                     "ngraph_mxnet.compile always runs compiled: explain and profile tell about it.")
    yield view(found.regions, "output {name}", "backend {backend} {precision}", "operators {ops:ops}",
               "first input {first_input}", ">threads {threads}", ">calls {calls}", title="Compiled regions")
    yield _range_table(found.ranges)
    yield view(found.steps, "output {name}", ">forward {forward:mib}", ">backward {backward:mib}", ">saved {saved:mib}",
               ">times {times}", ">in all {total:mib}", title="Memory of training steps, MiB")
    yield _left(found.left)
    yield view(found.fallbacks, "what {what}", ">times {count}", "reason {reason}", title="Run by MXNet")


# ---- kernels, their time and memory ------------------------------------------------------------------------------


@_lays_out
def contractions(found: Any) -> Parts:
    every = [{**vars(one), "region": number} for number, region in enumerate(found.kernels, 1) for one in region]
    title, nodes = titled("Contractions", [one["node"] for one in every])
    yield view(({**one, "node": node} for one, node in zip(every, nodes, strict=True)), "# {region}", "node {node}",
               "|algorithm {algorithm}", "|kernel {kernel}", "|tile {tile}", ">tasks by {order}", ">chunk {chunk}",
               ">tasks {tasks}", ">calls {calls}", title=title)
    yield _memory(found.memory)
    yield "Threads of a call, at most: " + ", ".join(map(str, found.threads))


def _memory(regions: Sequence[Any]) -> Table | None:
    """One row for each region."""
    return view(regions, "# {#}", ">all intermediates {intermediates:MB}", ">all buffers {separate:MB}",
                ">least possible {least:MB}", ">planned {planned:MB}", ">prepared weights {prepared:MB}",
                title="Memory beside inputs and outputs, MB")


def titled(title: str, nodes: Sequence[str]) -> tuple[str, list[str]]:
    """For a table with a column of nodes: its title, and the nodes by their framework's names. What all of these begin
    with stands in the title alone, and what those of one row begin with in front of it: `stage1_{conv0 + relu0}`."""
    names = [_framework_names(node) for node in nodes]
    prefix = common_prefix([name for row in names for name in row])
    cells = [_joined([name.removeprefix(prefix) for name in row]) or node
             for row, node in zip(names, nodes, strict=True)]
    return title + (f" of {prefix}" if prefix else ""), cells


def _framework_names(node: str) -> list[str]:
    """`conv0` and `relu0` of `convolution (mx:conv0 Convolution + mx:relu0 Activation)`."""
    inside = node.partition("(")[2].removesuffix(")")
    return [part.partition(":")[2].split(" ")[0] or part for part in inside.split(" + ") if part]


def _joined(names: Sequence[str]) -> str:
    prefix = common_prefix(names)
    rest = " + ".join(name.removeprefix(prefix) for name in names)
    return f"{prefix}{{{rest}}}" if prefix else rest


@_lays_out
def profile(found: Any) -> Parts:
    """Kernels by node, totals by kernel, and what is not in kernels."""
    def rated(row: Any, node: str = "") -> dict[str, Any]:
        flops = {} if row.gflop else {"gflops": None, "of_peak": None}
        return {**vars(row), **found.shares(row), **flops, "node": node}

    title, nodes = titled("Kernels by node", [row.origin for row in found.rows])
    rates = (">ms {ms:.3f}", ">share {share:percent}", ">GFLOP/s {gflops:rate}", ">of peak {of_peak:percent}",
             ">GB/s {gigabytes:rate}", ">of copy {of_copy:percent}")
    yield view(map(rated, found.rows, nodes), "|kernel {kernel}", "node {node}", *rates, title=title)
    yield view(map(rated, found.kinds()), "|kernel {kernel}", ">calls {calls}", *rates, title="Totals by kernel")
    rate = sum(row.gflop for row in found.rows) / found.wall_ms * 1e3
    parts = (("in kernels", sum(row.ms for row in found.rows)), ("in calls, threads waiting", found.waiting_ms),
             ("outside: framework, Python", found.outside_ms))
    yield facts_table([*((name, f"{ms:.3f} ms", percent(ms / found.total_ms)) for name, ms in parts), (
        "whole", f"{found.wall_ms:.3f} ms", f"{rate:.1f} GFLOP/s, {percent(rate / found.peak.gflops)} of the peak")],
        f"A forward pass (medians of {found.rounds})")
    yield _memory(found.memory)
    yield (f"Peak measured on {found.peak.threads} threads, {found.isa}: {found.peak.gflops:.1f} GFLOP/s of "
           f"multiply-adds in registers, {found.peak.gigabytes:.1f} GB/s copying memory. Tensors in a cache move "
           "faster than that.")
    yield found.note
    yield f"[bold]{found.dropped} spans were dropped: use fewer rounds.[/bold]" if found.dropped else None


_MOST_NODES = 30


@_lays_out
def simulation(found: Any) -> Parts:
    """The whole, engines, units, memories and links, energy, and the nodes that took longest."""
    yield facts_table([
        ("simulated time", f"{found.seconds * 1e3:.4f} ms"), ("instructions", found.instructions),
        *((f"{element} multiply-adds", f"{count / 1e9:.3f} G") for element, count in found.macs.items()),
        ("of the grids' peak", percent(found.peak_part)),
        ("energy", f"{found.joules * 1e3:.3f} mJ, {found.watts:.2f} W in the mean")],
        f"{found.program} on {found.device} (simulated)")
    yield view(found.engines, "engine {engine}", ">busy {busy:percent}", ">dependence {dependence:percent}",
               ">transfer {transfer:percent}", ">start-up {startup:percent}", ">no work {no_work:percent}",
               title="Where the time of each engine went (simulated)")
    yield view(found.units, "units {kind}", ">count {units}", ">busy in the mean {mean:percent}",
               ">busy at most {most:percent}", title="Units (simulated)")
    yield view(found.levels, "level {level}", ">bytes moved {bytes:binary}", ">of the capacity {utilisation:percent}",
               ">most in use {most:binary}", ">of {size:binary}", title="Memories and links (simulated)")
    yield facts_table(((name, f"{joules * 1e3:.3f} mJ", percent(joules / found.joules if found.joules else 0.0))
                       for name, joules in found.energy.items()), "Energy (simulated)")
    slowest = sorted(found.nodes, key=lambda row: row.begin - row.end)[:_MOST_NODES]
    yield view(slowest, "node {origin}", ">instructions {instructions}", ">begin us {begin:us}", ">end us {end:us}",
               ">grid us {grid:us}", ">vector us {vector:us}", ">dma us {dma:us}",
               title=f"Nodes that took longest (simulated; {len(slowest)} of {len(found.nodes)})")


# ---- where nodes run ---------------------------------------------------------------------------------------------


@_lays_out
def placement(found: Any) -> Parts:
    """The times, the regions, what crosses, and where each node goes and why."""
    yield bold(found.headline)
    yield line(found.told_costs)
    simulated = found.simulated_seconds
    yield table("predicted time of a call", "", rows=[
        ("as placed" + (", devices working at once" if found.overlaps else ""), time_text(found.seconds)),
        *([("as compiled, simulated", time_text(simulated))] if simulated is not None else []),
        *((f"all on {name}", time_text(seconds) if math.isfinite(seconds) else "not possible")
          for name, seconds in zip(found.devices, found.alone, strict=True)), ("found by", found.placement.method)])
    if (served := found.throughput) is not None:
        yield bold(f"{served.rate:,.0f} requests a second follow each other (simulated): {served.bottleneck} is the "
                   f"bottleneck")
        yield view(served.stages, "stage {name}", ">time of a request {seconds:time}", ">busy {busy:percent}",
                   caption=f"{served.in_flight} in flight; one alone takes {time_text(served.latency)}")
    compiled = [">simulated as compiled {simulated_seconds:time}"] * bool(found.simulated)
    yield view(found.regions, "# {#}", "device {device}", "ops {ops:ops}", ">nodes {nodes:count}",
               ">MACs {cost.macs:short}", ">begin {begin:time}", ">time {seconds:time}", *compiled,
               title="Regions, in the order in which they run",
               caption="as compiled: with the transfers of the region's inputs and results" if compiled else None)
    if found.transfers:
        shared = found.shared
        told = (f"{shared['tensors']} tensors of {short(shared['bytes'])}B lie in memory that both devices address: "
                f"not copied, which saved {time_text(shared['seconds'])}")
        yield table("tensor", "to", ">bytes", ">begin", ">time", title="Between the devices", rows=(
            (t.name, t.to, short(t.bytes), time_text(t.begin), time_text(t.end - t.begin) if t.copied else "shared")
            for t in found.transfers), caption=told if shared["tensors"] else None)
    if found.nodes:
        alike = groupby(found.nodes, lambda node: (node.device, node.region, node.why))
        yield table("nodes", "device", *found.devices, "why", title="Where each node goes",
                    rows=(_placed(list(nodes)) for _, nodes in alike))
    for pattern in found.outline.unmatched:
        yield notice(f"no node here is called {pattern!r}: that pin did nothing")


def _placed(nodes: Sequence[Any]) -> tuple[str, ...]:
    """The row of neighbours of one device and reason."""
    first, last = (each.name + (f" {each.op}" if each.name != each.op else "") for each in (nodes[0], nodes[-1]))
    times = ("-" if None in column else time_text(sum(s for s in column if s is not None))
             for column in zip(*(node.seconds for node in nodes), strict=True))
    return (first if len(nodes) == 1 else f"{first} to {last} ({len(nodes)})", nodes[0].device, *times, nodes[0].why)


# ---- results -----------------------------------------------------------------------------------------------------


@_lays_out
def quantisation(found: QuantisationReport) -> Parts:
    yield table("|layer", "range", "scale", "zero", "method", "corrections", "damage", "float ms", "int8 ms",
                "decision", rows=map(_layer, found.layers))  # names that aren't broken can be copied, to be kept
    if found.errors:
        errors = ", ".join(f"{method} {error:.3g}" for method, error in found.errors.items())
        yield line(f"Error of the outputs by method: {errors}")
    yield view(found.corrections, "correction {name}", "layers {layers}", "used for {used}",
               "error without {error_without:.3g}", "error with {error_with:.3g}")
    metric = found.metric + " {metric:.5g}"
    yield view(found.trace, "evaluation {#}", "layers in float {kept:count}", metric, "within the bound {holds:plain}")
    yield view(({"name": name, "metric": value, **vars(totals)} for name, value, totals in (
        ("float", found.float_metric, found.float_totals),
        ("quantised", found.quantised_metric, found.quantised_totals))),
        f"{found.samples} samples {{name}}", f"ms, {found.threads} threads {{ms:.3f}}", metric,
        "weights MB {weight_bytes:MB}", "arena MB {arena_bytes:MB}")
    yield line(found.decision)
    yield notice(found.doubt) if found.doubt is not None else None


def _layer(row: LayerRow) -> tuple[str | None, ...]:
    span = None if row.range is None else f"{row.range[0]:.4g} to {row.range[1]:.4g}"
    numbers = (None,) * 3 if row.scale is None else (span, f"{row.scale:.4g}", str(row.zero_point))
    return (row.name, *numbers, row.method, ", ".join(row.corrections) or None,
            None if row.damage is None else f"{row.damage:.2g}", f"{row.float_ms:.3f}", f"{row.int8_ms:.3f}",
            "int8" if row.kept is None else f"float: {row.kept}")


@_lays_out
def verification(found: Verification) -> Parts:
    told = "the outputs agree" if found.agrees else "the outputs differ"
    yield bold(f"{found.model} on {found.backend} in {found.precision}, against {found.reference}: {told}")
    yield line(f"inputs: {'; '.join(found.inputs) or 'none'}")
    yield line(f"weights: {found.weights}")
    yield line(f"tolerance: {found.tolerance}")
    yield line(found.note) if found.note is not None else None
    yield table("output", "dtype", "shape", "largest difference", "elements beyond", "", rows=(
        (name, of.ours.dtype, list(of.ours.shape), of, of.beyond,
         "agrees" if of.agrees else line("differs", "red")) for name, of in found.outputs))
    yield found.diverging
    yield notice(f"no node is named: {found.unnamed}") if found.unnamed is not None else None


_PARTS = "Parts of the model were compiled alone to find it, in which nodes may be fused otherwise than in the whole."


@_lays_out
def diverging(found: Diverging) -> Parts:
    title = bold("The first value that differs: ").append(found.name, style="red")
    yield title.append(f" of {found.origin or 'a node without a name'}")
    yield line(found.text)
    yield view(({"whose": whose, **jsonable(getattr(found.difference, whose))} for whose in ("ours", "reference")),
               "{whose}", "dtype {dtype}", "shape {shape}", *(f"{name} {{{name}:.6g}}" for name in (
                   "min", "max", "mean", "norm")), "NaN {nan}", "infinite {infinite}")
    yield line(_most(found.difference))
    operands = [f"{one.name} of {one.origin or 'a node without a name'}, which differs by {one.difference}"
                for one in found.operands]
    yield line(f"Operands: {'; '.join(operands) or 'none'}. Parameters: {listed(found.parameters) or 'none'}.")
    yield bold(f"Verdict: {found.verdict()}.")
    whole = ("agrees, so that the difference is one of how the part is fused" if found.whole.agrees
             else f"differs, too, by {found.whole}")
    yield line(f"In the whole model, as a further output, the value {whole}. {_PARTS}")


def _most(difference: Difference) -> str:
    if difference.index is None:
        return "The shapes differ." if difference.share is None else "No element differs."
    return (f"{difference.beyond} of {prod(difference.reference.shape)} elements differ by more than the tolerance. "
            f"Most does {list(difference.index)}: ours {difference.element:.9g}, reference {difference.expected:.9g}, "
            f"by {difference.absolute:.3g}: {difference.relative:.3g} of the element, {difference.share:.3g} of the "
            "largest magnitude.")


@_lays_out
def parting(found: Parting) -> Parts:
    """Where two recorded runs part."""
    yield from (line(f"Note: {sentence}.") for sentence in found.unmatched)
    if found.call is None:
        yield line(f"No difference in {found.compared.tensors} tensors of {found.compared.calls} calls.")
        return
    yield line(f"The runs part at {found.node}, in call {found.call.number} of graph {found.call.graph}.")
    for pair in (*found.weights, *filter(None, [found.first])):
        yield line(f"  {phrase(pair.a.tensor).rstrip(',')}:")
        for name, each in (("first", pair.a), ("second", pair.b)):
            yield line(f"    {name:6} {each.statistics}, hash {each.hash[:12]}")


@_lays_out
def onnx_file(found: OnnxFile) -> Parts:
    """What was written as ONNX, and what it was compared with."""
    inputs, outputs = (FORMS["pairs"](types) for types in (found.inputs, found.outputs))
    rows = [("file", f"{found.file}, {found.bytes / 1e6:.1f} MB, opset {found.opset}"), ("inputs", inputs),
            ("outputs", outputs), ("operators", ", ".join(f"{name} {count}" for name, count in found.nodes.items())),
            ("assumed", "\n".join(found.assumed)), ("compared", "\n".join(map(str, found.compared))),
            ("took", f"{found.seconds:.1f} s")]
    yield facts_table((name, text) for name, text in rows if text)
