"""The text of docs/nnp-validation.md, from the results of nnp_validate.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_LEAST_EFFECT = 0.004
"""Device guesses that change the rate by less are left out of the page."""

_TEXT = """# How near the simulated NNP is to published figures

This page holds [the simulator](nnp.md) against the figures that are published of the Nervana NNP. All our figures are
simulated. The page is generated: edit `scripts/mlperf/page.py` or `scripts/mlperf/published.py` and run

```sh
python scripts/nnp_validate.py            # the table below; exit status 1 if a bound does not hold
python scripts/nnp_validate.py --json
python scripts/nnp_validate.py --write    # this page, with the sensitivity: minutes
```

Most figures are of one workload. Intel submitted two NNP-I 1000 to MLPerf Inference v0.5 (closed division, preview,
November 2019) with ResNet-50 v1.5 in int8. Its measurement scripts state batch 1, 12 networks a card, and two
inferences in flight on each engine. Clock and power are blank. We simulate two chips of `nnp-i-1100:12W`.

| row | kind | published | simulated | error | bound | independent |
|---|---|---|---|---|---|---|
{rows}

* A *primary* figure was read in the submission's own files, a *secondary* one in a text of others. A *derived*
  one follows from such figures. A *memory* figure is recalled, and no test depends on it.
* A figure that is not *independent* follows from others by the law of queues below. So MLPerf gives two independent
  quantities, the period of an engine and the least latency, and tests one law of queues.
* A bound is the largest error that the project allows. Rows without one are told, not promised.
* Top-1 accuracy is not simulated: ImageNet's images are not at hand. [quantisation.md](quantisation.md) and
  [nnp.md](nnp.md#numbers) have the accuracy of int8 on other images.

Sources, in the repository mlcommons/inference_results_v0.5 at commit f5acb8b unless another is named:

{sources}

## Server at a given load
An engine ends an inference every {period:.3f} ms if it has always others waiting, and a lone one after {alone:.3f} ms.
These two times come from the simulated Program (*Offline*, below). The rest is the law of queues, in
`scripts/mlperf/serving.py`:

* Each of 24 engines has two slots. A request takes any free slot, whatever else that engine holds. If none is free, it
  waits in order of arrival.
* Two inferences on an engine share it evenly. Each advances at half the rate at which the engine ends inferences.
* Requests arrive when the submission's did. LoadGen draws the gaps from a seed, which its logs state. Our arrivals
  agree with the logged number of requests and the logged time of the last one to the nanosecond.
* All gaps are stretched by the simulated period over the published one ({stretch:.4f}), so that engines are as busy as
  the submission's. Without this the first load would be above what the simulated chips can do.

The table compares laws, in ms. Here the two times of an engine are the published ones, so that only the law is tried.
If engines compute in turn, the median is 15 % or more too low, and with one queue before idle engines 28 %.

| load | free slot | two on an engine | mean | p50 | p90 | p95 | p97 | p99 | p99.9 |
|---|---|---|---|---|---|---|---|---|---|
{queues}

The first of 1,024 images that arrive at once ends a third earlier on the submission's chips than two inferences that
share evenly from their begin. So sharing is not quite even. All of them take as long as Offline's rate says, within one
percent.

## Calibrations
No parameter of the simulator was fitted to a figure on this page. A test holds the SHA-256 of all parameters of all
devices and of lowering against the frozen one, `{hash}`.

One calibration is declared. It is applied to results on this page only.

| what | factor | from the row | images/s/W, `five-t4` (401.6) | images/s/W, `chip-per-watt` (360) |
|---|---|---|---|---|
| none | 1 | | {raw_per_watt:.0f} | {raw_per_watt:.0f} |
{calibrations}

With it a chip of 10 W would use {calibrated_watts:.1f} W, more than its design power, since the simulated rate of that
mode is above the recalled one. So the factor tells how far the guessed energies are off. It is no estimate of a chip.

Other changes were tried, and are not made:

| change | Offline, images/s | why not |
|---|---|---|
{uncalibrated}

The driver sets the engines' clock in steps of 25 MHz (IntelAI/nnpi-card 8370e75). The clocks here are none of these
steps, since each follows from published operations a second. A published peak lies between two steps. Which of the two
it was is not published, and the rows above would make the choice.

## Offline
* The model is `scripts/mlperf/resnet.py`: ResNet-50 with the stride in the 3x3 convolution, 4.089 billion multiply-adds
  an image. Weights are random, because no time depends on them.
* The compiler treats the graph like any other (`backend="NNP"`, `precision="int8"`, throughput mode).
* The Program runs four times in a row (`scripts/mlperf/serving.py`). A batch begins to arrive while the engines compute
  the batch before it, as far as their shared buffers allow. The period is the time between the ends of two batches.
* Images cross the host link as int8, 150,528 bytes each, and the logits return.

| two chips of | Offline, images/s | of the grids' peak | W a chip, by counted energy | images/s/W |
|---|---|---|---|---|
{modes}

The submission does not name the power mode of its chips. 50 TOPS at 12 W is the mode of the I-1100, the product of one
chip on an M.2 card. With all grids busy two chips would do 12,227 images/s in this mode. At the 92 TOPS of 50 W the
submission would have used 47 % of the grids.

The counted energies leave out the two CPU cores, regulators and everything idle except a fifth of the design power. All
are guesses from publications about other chips. The figures of one chip (recalled) disagree with the submission: 3,600
images/s at 10 W, and 5,290 a chip in it. The modes of 10 W and 12 W differ by only 4 %.

## NNP-T
Products run from the device's DRAM and back, in bf16 on an `nnp-t-1400`. The figures are recalled, so they say at most
where to look: products with a long contraction are too slow in the simulator. Tiles hold the whole contraction, so
they are small, and engines fetch the same operands anew.

## Where the numbers come from
[nnp-devices.md](nnp-devices.md) has every number of the devices, with its unit and source. These decide the result:

| number | value | from |
|---|---|---|
| engines a chip | 12 | published |
| int8 multiply-adds a cycle and engine | 4,096 | published: a grid of 32 x 32 x 4 |
| clock | 508.6 MHz | derived: 50 TOPS of the I-1100 at 12 W, over 2 x 4,096 x 12 operations a cycle |
| loops along the sides of the grid | 32 output channels, 32 output positions, 4 input channels | **guess** |
| LLC, DRAM | 24 MiB at 680 GB/s, 67.2 GB/s | published; the LLC's rate is a ratio to DRAM's |
| deep SRAM of an engine | 4 MiB, 605.5 B a cycle | published size; bandwidth derived from a ratio to DRAM's |
| host link | PCIe 3 x4, 3.9 GB/s each way | published width; derived |

Other choices of the compiler are rules without a source, and no study measured their effect:
* at most two axes to cut along (`lowering.py`);
* of cuts along two axes, only those that use over half of the engines (`lowering.py`);
* tiles along at most three axes, in a fixed list of numbers of parts (`lowering.py`);
* buffers at multiples of 64 bytes (`places.py`);
* spilling of the value that is read latest (`places.py`);
* a period taken from four runs (`scripts/mlperf/scenarios.py`).

The grids lose time in these places, in the order of the layers:
* The stem has 3 input channels, and the grid takes 4.
* Rows of 7 x 7 images fill 49 of 64 positions.
* Every instruction fills and drains the grid (64 cycles, a guess).
* Engines wait for the first tiles of a layer.

{sensitivity}## What the simulator leaves out
* preprocessing and the host's own time;
* interrupts and drivers, which the published least latency includes and the simulated one does not;
* clocks that follow power and temperature;
* errors of the memories;
* conflicts between the two sides of an engine's memory, its units and the network: neither side slows the other.
"""

_SENSITIVITY = """## How much each guess matters
Offline's rate with one guessed number changed, as a part of the rate with none changed. For a number of the device the
Program is the same. For one of lowering the graph is lowered anew. Device guesses that change the rate by less than
{least_effect} are left out: {left_out} variations.

| guess | images/s |
|---|---|
{sensitivity}

The layout of the loops on the grid matters most. With the 4 on another loop, or with blocks that end with an image's
row, the layers' shapes fill about half of the grid. The 85 and 92 TOPS of the I-1300 would then come near the
submission's figure, and 50 TOPS would not. The published figures alone do not decide between the two.

"""


def page(found: dict[str, Any]) -> str:
    """The page for the results of `nnp_validate.validated`; a section on guesses only if these were tried."""
    by_id = {row["id"]: row for row in found["rows"]}
    names = ("mean", "p50", "p90", "p95", "p97", "p99", "p99.9")
    loads = dict.fromkeys(queue["load"] for queue in found["queues"])
    queues = []
    for load in loads:
        queues.append([load, "published", "", *(f"{by_id[f'{load}-{name}']['published']:.2f}" for name in names)])
        queues += [[load, {"blind": "any", "idlest": "of the idlest engine"}[queue["choice"]], queue["sharing"],
                    *(f"{queue[name]:.2f}" for name in names)] for queue in found["queues"] if queue["load"] == load]
    calibrated, (calibration,) = by_id["five-t4"], found["calibrations"]
    usual = found["engine"]["period_ms"]
    return _TEXT.format(
        rows=_lines(map(_row, found["rows"])), sources=_sources(found["rows"]),
        period=usual, alone=found["engine"]["alone_ms"], stretch=usual * by_id["offline"]["published"] / 24e3,
        queues=_lines(queues), hash=found["hash"]["frozen"], raw_per_watt=calibrated["simulated"],
        calibrations=_lines([[calibration["what"], f"{calibration['factor']:.3f}", f"`{calibration['row']}`",
                              f"{calibrated['calibrated']:.0f} (used)",
                              f"{by_id['chip-per-watt']['calibrated']:.0f}"]]),
        calibrated_watts=calibration["watts"],
        uncalibrated=_lines([each["what"], f"{each['images']:,.0f} ({_error(each['images'], by_id['offline'])})",
                             "a choice between two steps" if "clock" in each["what"]
                             else "no start-up at all explains a part only"] for each in found["uncalibrated"]),
        modes=_lines([f"`{each['device']}`", f"{each['images']:,.0f}", f"{each['of peak'] * 100:.0f} %",
                      f"{each['watts']:.2f}", f"{each['per watt']:.0f}"] for each in found["modes"]),
        sensitivity=_sensitivity(found["sensitivity"]) if "sensitivity" in found else "")


def _sensitivity(found: Sequence[dict[str, Any]]) -> str:
    shown = [row for row in found if abs(row["part"] - 1) >= _LEAST_EFFECT or row["guess"].startswith("lowering's")]
    return _SENSITIVITY.format(least_effect=f"{_LEAST_EFFECT * 100:g} %", left_out=len(found) - len(shown),
                               sensitivity=_lines([row["guess"], f"{row['part']:.3f}"] for row in shown))


def _row(row: dict[str, Any]) -> Sequence[str]:
    bound = "at least" if row["least"] else f"{row['within'] * 100:.0f} %" if row["within"] else ""
    return (f"`{row['id']}`: {row['what']}", row["kind"], f"{_number(row['published'])} {row['unit']}",
            "" if row["simulated"] is None else _number(row["simulated"]),
            "" if row["error"] is None else _percent(row["error"]), bound, "yes" if row["independent"] else "")


def _error(value: float, row: dict[str, Any]) -> str:
    return _percent(value / row["published"] - 1)


def _percent(part: float) -> str:
    return f"{part * 100:+.1f} %"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _sources(rows: Iterable[dict[str, Any]]) -> str:
    found: dict[str, list[str]] = {}
    for row in rows:
        where = f"`{row['path']}`" if row["path"].startswith("closed/Intel") else (
            f"{row['source']}{' `' + row['path'] + '`' if row['path'] else ''}")
        found.setdefault(where, []).append(row["id"])
    return "\n".join(f"* {where}: {_ids(ids)}" for where, ids in found.items())


def _ids(ids: Sequence[str]) -> str:
    return f"`{ids[0]}` to `{ids[-1]}`" if len(ids) > 2 else ", ".join(f"`{each}`" for each in ids)


def _lines(rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
