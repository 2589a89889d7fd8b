"""Runs that follow each other, and how much a result depends on what was guessed."""

from __future__ import annotations

from dataclasses import fields

import pytest
from lowered_graphs import resources
from lowered_graphs import version as lowered_version
from mlperf.sensitivity import lowering_sensitivity, sensitivity, variations
from mlperf.serving import repeated, stream
from nnp_checks import check

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.targets.nnp.device import load_device
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.lowering import Settings
from ngraph_mxnet.targets.nnp.places import Guesses
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, Program, Tile, whole
from ngraph_mxnet.targets.nnp.timing import simulate

NAME = "nnp-i-1100"
SIZE = 1 << 20


def program(halves: int) -> Program:
    """A load from the host, a copy to an engine, an operation, and a store; two runs' loads differ if `halves` is 2."""
    host, result = Buffer("x", "host", 0, "i8", (SIZE,)), Buffer("y", "host", SIZE, "i8", (SIZE,))
    dram = Buffer("dram", "dram", 0, "i8", (SIZE,))
    near = Buffer("near", "ice0.sram", 0, "i8", (SIZE,))
    done = Buffer("done", "dram", SIZE * halves, "i8", (SIZE,))
    return order(Program("run", NAME, [
        Instruction("host.dma0", "copy", (whole(dram),), (whole(host),)),
        Instruction("ice0.dma0", "copy", (whole(near),), (whole(dram),)),
        Instruction("ice0.vector", "vector", (whole(near),), (whole(near),), {"op": "exp"}),
        Instruction("ice0.dma1", "copy", (whole(done),), (whole(near),)),
        Instruction("host.dma1", "copy", (whole(result),), (whole(done),)),
    ], [host], [result]))


def test_runs_overlap_as_far_as_they_may():
    one = program(1)
    alone = simulate(one)
    steady = stream(one, times=5)
    assert steady.first == pytest.approx(alone.seconds)
    times = alone.end - alone.start
    # The tile is loaded anew only after it is stored; loads and stores of the host share DRAM with those of the tile.
    assert steady.period == pytest.approx(float(times[1:4].sum()), rel=0.01)
    assert steady.period < 0.8 * steady.first
    assert len(steady.timeline.program.instructions) == 25
    check(steady.timeline.program)


def test_what_is_loaded_once_must_stay():
    one = program(1)
    constant = Buffer("weights", "dram", SIZE - 8, "i8", (16,))
    for wrong in ({"kept": [constant]}, {}):
        if not wrong:
            one.constants = {constant: bytes(16)}
        with pytest.raises(NGraphError, match=r"run can't be repeated: dram overwrites weights in dram"):
            repeated(one, 2, **wrong)
    one.constants = {Buffer("weights", "dram", 4 * SIZE, "i8", (16,)): bytes(16)}
    assert len(repeated(one, 3).instructions) == 15
    with pytest.raises(NGraphError, match="at least two runs"):
        stream(one, times=1)


def test_what_was_in_after_stays_within_its_run():
    one = program(1)
    one.instructions.append(Instruction("ice1.grid", "barrier", (), (), after=(0,)))
    assert repeated(one, 2).instructions[11].after == (6,)


def test_sensitivity():
    one = program(1)
    rows = sensitivity(NAME, lambda device: simulate(one, device).seconds)
    parts = {row.variation.what: row.part for row in rows}
    times = simulate(one)
    exp = float(times.end[2] - times.start[2]) / times.seconds
    assert parts["vector.cycles.transcendental = 32 cycle/vector"] == pytest.approx(1 + exp, rel=1e-3)
    assert parts["vector.cycles.transcendental = 8 cycle/vector"] == pytest.approx(1 - exp / 2, rel=1e-3)
    assert parts["grid.joined = 0 (0: positions of one row, 1: of one image, 2: of all)"] == 1.0
    assert abs(rows[0].part - 1) == max(abs(part - 1) for part in parts.values())


def test_every_guess_about_time_is_varied():
    device = load_device(NAME)
    varied = {path for each in variations(device) for path in each.overrides}
    guesses = {path for path, number in device.numbers.items() if number.kind == "guess"}
    left = {path for path in guesses - varied if not path.startswith("cores.")}  # which no Program uses
    assert left <= {path for path in guesses if path.split(".")[-1] in ("energy", "size", "static", "queues",
                                                                       "host_queues")}
    for each in variations(device):
        assert load_device(NAME, each.overrides).grids["i8"].macs == 4096


def test_a_mapping_changes_the_time():
    a, b, c = (whole(Buffer(name, "ice0.sram", 0, "i8", shape))
               for name, shape in (("a", (64, 64)), ("b", (64, 32)), ("c", (64, 32))))
    one = Program("p", NAME, [Instruction("ice0.grid", "matmul", (c,), (a, Tile(b.buffer, b.begin, b.shape)))])
    rows = sensitivity(NAME, lambda device: simulate(one, device).seconds)
    parts = {row.variation.what: row.part for row in rows}
    loaded = 64 * 64 * 8 + 64 * 32 * 2 + 64 * 32  # each of the 8 blocks of channels reads all of a: more than cycles
    assert parts["i8 grid: 4 channels x 32 positions x 32 depth"] == pytest.approx((64 + loaded / 605.5) / (64 + 32))
    assert parts["grid.startup = 128 cycle"] == pytest.approx((128 + 32) / (64 + 32))


def test_guesses_of_lowering_are_varied_by_lowering_anew():
    b = Builder(name="one")
    x, w = b.parameter("x", (2, 40, 16, 16)), b.weight("w", (48, 40, 3, 3))
    graph = b.results(b.tanh(b.convolution(x, w, pads_begin=(1, 1), pads_end=(1, 1))))
    on = resources(local_bytes=32 << 10).with_engines(2)
    one = lowered_version(graph, on, instances=2)
    rows = lowering_sensitivity(one, Settings(on, 2), lambda program: simulate(program).seconds)
    parts = {row.variation.what: row.part for row in rows}
    assert len(parts) == sum(len(each.metadata["others"]) for each in fields(Guesses))
    assert parts["lowering's pieces = 8 pieces"] == 1.0  # nothing is reshaped
    assert parts["lowering's tile_shares = (0.425, 0.3, 0.2, 0.1) of the engine's free memory"] != 1.0
    assert abs(rows[0].part - 1) == max(abs(part - 1) for part in parts.values())
