"""The timing simulator: bounds that hold for every program, and times that can be computed by hand."""

from __future__ import annotations

import random
import time
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from nnp_checks import share
from nnp_programs import DEVICE, programs

from ngraph_mxnet.base.errors import NGraphError
from ngraph_mxnet.ir.opdef import all_ops
from ngraph_mxnet.targets.nnp.device import Device, load_device
from ngraph_mxnet.targets.nnp.hazards import order
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, Program, Tile, whole
from ngraph_mxnet.targets.nnp.timing import Demand, capacity, demand_of, fair_rates, simulate

I = load_device(DEVICE)  # noqa: E741
T = load_device("nnp-t-1400")


def alone(demand: Demand, device: Device) -> float:
    """Seconds from begin to end where nothing else runs."""
    if not demand.moved:
        return demand.seconds
    return demand.seconds + demand.moved * max(weight / capacity(name, device) for name, weight in demand.route)


def critical_path(program: Program, seconds: list[float]) -> float:
    ends: list[float] = []
    last: dict[str, int] = {}
    for number, instruction in enumerate(program.instructions):
        before = [*instruction.after, *([last[instruction.unit]] if instruction.unit in last else [])]
        ends.append(max((ends[other] for other in before), default=0.0) + seconds[number])
        last[instruction.unit] = number
    return max(ends)


@settings(max_examples=30, deadline=None)
@given(programs())
def test_every_program_ends_between_its_bounds(program: Program):
    order(program)
    seconds = [alone(demand_of(instruction, I), I) for instruction in program.instructions]
    timeline = simulate(program)
    assert critical_path(program, seconds) <= timeline.seconds * (1 + 1e-9)
    assert timeline.seconds <= sum(seconds) * (1 + 1e-9)
    assert (timeline.end - timeline.start >= np.array(seconds) * (1 - 1e-9)).all()
    assert all(used <= 1 + 1e-9 for used in timeline.utilisation().values())
    for name, most in timeline.most.items():
        assert 0 <= most <= 512 < I.memory(name).size
    again = simulate(program)
    assert (again.start == timeline.start).all() and (again.end == timeline.end).all()
    assert again.energy == timeline.energy


@settings(max_examples=20, deadline=None)
@given(programs())
def test_what_conflicts_does_not_overlap_in_time(program: Program):
    timeline = simulate(order(program))
    for number, instruction in enumerate(program.instructions):
        for other in range(number):
            earlier = program.instructions[other]
            pairs = [(a, b) for a in instruction.writes for b in (*earlier.writes, *earlier.reads)]
            pairs += [(a, b) for a in instruction.reads for b in earlier.writes]
            if any(share(a, b) for a, b in pairs):
                assert timeline.end[other] <= timeline.start[number]


def run(*items: Instruction, device: str = DEVICE):
    return simulate(Program("p", device, list(items)))


def copy(unit: str, to: Buffer, source: Buffer, **fields) -> Instruction:
    return Instruction(unit, "copy", (whole(to),), (whole(source),), **fields)


def test_a_copy_takes_latency_and_bytes_over_the_slowest():
    a, b = Buffer("a", "dram", 0, "i8", (1 << 20,)), Buffer("b", "ice0.sram", 0, "i8", (1 << 20,))
    timeline = run(copy("ice0.dma0", b, a))
    assert timeline.seconds == pytest.approx(1e-7 + 1e-7 + 1e-8 + 2**20 / 67.2e9)
    assert timeline.utilisation()["dram"] == pytest.approx(1 - 2.1e-7 / timeline.seconds)
    assert timeline.traffic == {"dram": 2**20, "ice0.sram": 2**20}
    assert timeline.energy["dram"] == pytest.approx(2**20 * 3.2e-11)
    assert timeline.energy["static"] == pytest.approx(timeline.seconds * 2.4)


def test_short_runs_cost_whole_bursts():
    image, tile = Buffer("image", "dram", 0, "i8", (64, 128)), Buffer("t", "ice0.sram", 0, "i8", (64, 8))
    moved = demand_of(Instruction("ice0.dma0", "copy", (whole(tile),), (Tile(image, (0, 0), (64, 8)),)), I)
    assert moved.moved == 64 * 64 and moved.traffic == {"dram": 64 * 64, "ice0.sram": 512}


def test_transfers_share_a_memory_fairly_and_speed_up_again():
    mib = 1 << 20
    dram = [Buffer(f"d{i}", "dram", 2 * mib * i, "i8", (mib * (1 + i),)) for i in range(2)]
    sram = [Buffer(f"s{i}", f"ice{i}.sram", 0, "i8", (mib * (1 + i),)) for i in range(2)]
    timeline = run(*(copy(f"ice{i}.dma0", sram[i], dram[i]) for i in range(2)))
    latency = 2.1e-7
    assert timeline.end == pytest.approx([latency + 2 * mib / 67.2e9, latency + 3 * mib / 67.2e9])


def test_a_transfer_held_up_elsewhere_leaves_its_share_to_others():
    mib = 1 << 20
    pairs = [("ice0.dma0", "ice0.sram"), ("ice0.dma1", "ice0.sram"), ("ice1.dma0", "ice1.sram")]
    items = [copy(unit, Buffer(f"s{i}", near, mib * i, "i8", (mib,)), Buffer(f"l{i}", "llc", mib * i, "i8", (mib,)))
             for i, (unit, near) in enumerate(pairs)]
    timeline = run(*items)
    latency = 1e-7 + 2e-8 + 1e-8
    assert timeline.end == pytest.approx([latency + 2 * mib / 85e9] * 2 + [latency + mib / 85e9])


def test_fair_rates():
    weights = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    assert fair_rates(np.array([1.0, 1.0, 1.0]), weights, np.array([10.0, 6.0])) == pytest.approx([8.0, 2.0, 2.0])
    assert fair_rates(np.array([0.0, 2.0, 0.0]), weights, np.array([10.0, 6.0])) == pytest.approx([0.0, 3.0, 0.0])


def convolution(data: tuple[int, ...], weights: tuple[int, ...], pad: int, stride: int = 1, groups: int = 1,
                element: str = "i8") -> Instruction:
    size = (data[2] + 2 * pad - weights[2]) // stride + 1
    shapes = {"data": data, "weights": weights, "result": (data[0], weights[0], size, size)}
    engine = "tpc0" if element == "bf16" else "ice0"
    tiles = {name: whole(Buffer(name, f"{engine}.sram", 0, element, shape)) for name, shape in shapes.items()}
    attrs = {"strides": (stride,) * 2, "dilations": (1, 1), "pads_begin": (pad,) * 2, "pads_end": (pad,) * 2,
             "groups": groups}
    return Instruction(f"{engine}.grid", "convolution", (tiles["result"],), (tiles["data"], tiles["weights"]), attrs)


@pytest.mark.parametrize(("instruction", "cycles"), [
    (convolution((1, 64, 8, 8), (64, 64, 3, 3), 1), 2 * 2 * 16 * 9),
    (convolution((1, 66, 7, 7), (33, 66, 1, 1), 0), 2 * 2 * 17),
    (convolution((1, 3, 8, 8), (32, 3, 7, 7), 3), 1 * 2 * 1 * 49),
    (convolution((1, 32, 8, 8), (32, 1, 3, 3), 1, groups=32), 32 * 2 * 9),
    (convolution((1, 64, 8, 8), (64, 64, 3, 3), 1, element="f16"), 2 * 2 * 64 * 9),
])
def test_cycles_of_the_grid(instruction: Instruction, cycles: int):
    demand = demand_of(instruction, I)
    assert demand.seconds == pytest.approx((64 + cycles) / I.clock)
    n, o, h, w = instruction.writes[0].shape
    assert list(demand.macs.values()) == [n * o * h * w * int(np.prod(instruction.reads[1].shape[1:]))]


def test_a_full_grid_runs_at_its_peak():
    demand = demand_of(convolution((4, 256, 16, 16), (256, 256, 3, 3), 1), I)
    assert demand.macs["i8"] / (demand.seconds - I.grid_startup) == pytest.approx(I.peak("i8") / I.engines)


def test_the_grid_is_as_slow_as_its_memory():
    """A 1x1 convolution in bf16 reads 64 weights' and 128 data's bytes a cycle, the scratchpad gives 159."""
    demand = demand_of(convolution((1, 512, 16, 16), (512, 512, 1, 1), 0, element="bf16"), T)
    cycles = 16 * 4 * 512
    count = cycles * (32 + 64) * 2 + 512 * 256 * 2
    assert demand.seconds - T.grid_startup == pytest.approx(count / 175e9) and count / 175e9 > cycles / T.clock


def test_positions_joined_or_not():
    instruction = convolution((4, 64, 7, 7), (32, 64, 1, 1), 0)
    for joined, blocks in ((2, ceil(4 * 49 / 32)), (1, 4 * 2), (0, 4 * 7)):
        device = load_device(DEVICE, {"grid.joined": joined})
        assert demand_of(instruction, device).seconds - device.grid_startup == pytest.approx(16 * blocks / device.clock)


def test_vector_operations():
    tile = whole(Buffer("a", "ice0.tcm", 0, "f16", (1000,)))
    relu, exp = (Instruction("ice0.vector", "vector", (tile,), (tile,), {"op": op}) for op in ("relu", "exp"))
    assert demand_of(relu, I).seconds == pytest.approx((32 + 32) / I.clock)  # 1000 elements on 32 lanes
    assert demand_of(exp, I).seconds == pytest.approx((32 + 32 * 16) / I.clock)


def test_a_transpose_is_free_where_the_memory_does_it():
    def seconds(engine: str, device) -> float:
        a, b = (Buffer("tile", f"{engine}.sram", 1 << 20, "f32", shape) for shape in ((64, 32), (32, 64)))
        transpose = Instruction(f"{engine}.dma0", "transpose", (whole(b),), (whole(a),), {"order": (1, 0)})
        return demand_of(transpose, device).moved

    assert seconds("tpc0", T) == 64 * 32 * 4
    assert seconds("ice0", I) == 64 * 32 * 64


def test_every_op_of_the_ir_has_a_count():
    assert [name for name, op in all_ops().items() if op.work is None] == []


def test_memory_in_use_is_followed():
    a, b = Buffer("a", "llc", 0, "i8", (4096,)), Buffer("b", "llc", 2048, "i8", (4096,))
    timeline = run(Instruction("ice0.dma0", "fill", (whole(a),), (), {"value": 0.0}),
                   Instruction("ice1.dma0", "fill", (whole(b),), (), {"value": 0.0}))
    assert timeline.most == {"llc": 6144}
    beyond = Buffer("beyond", "ice0.tcm", 262_143, "i8", (2,))
    with pytest.raises(NGraphError, match=r"instruction 0: buffer beyond .* brings ice0.tcm to 2 bytes .* of 262144"):
        run(Instruction("ice0.dma0", "fill", (whole(beyond),), (), {"value": 0.0}))
    program = Program("big", DEVICE, sizes={"llc": 1 << 30})
    with pytest.raises(NGraphError, match="big needs 1073741824 bytes of llc"):
        simulate(program)


def test_a_wait_for_a_later_instruction_is_refused():
    with pytest.raises(NGraphError, match="instruction 0 waits for"):
        run(Instruction("ice0.grid", "barrier", (), (), after=(1,)), Instruction("ice0.grid", "barrier", (), ()))


@pytest.mark.slow
def test_thirty_thousand_uneven_instructions():
    """No two moments have the same transfers under way."""
    draw, program = random.Random(1), Program("many", DEVICE)
    data = Buffer("data", "dram", 0, "i8", (64, 65536))
    for number in range(10_000):
        engine, length = f"ice{draw.randrange(12)}", draw.randrange(64, 65536)
        tile = whole(Buffer(f"a{number}", f"{engine}.sram", draw.randrange(8) << 16, "i8", (1, length)))
        source = Tile(data, (number % 64, 0), (1, length))
        program.instructions += [Instruction(f"{engine}.dma0", "copy", (tile,), (source,)),
                                 Instruction(f"{engine}.vector", "vector", (tile,), (tile,), {"op": "relu"}),
                                 Instruction(f"{engine}.dma1", "copy", (source,), (tile,))]
    order(program)
    start = time.process_time()
    simulate(program)
    assert time.process_time() - start < 20


@pytest.mark.parametrize(("m", "k", "n", "rows", "columns"),
                         [(1024, 700, 512, 32, 32), (70, 9, 33, 16, 8), (5, 3, 4, 8, 8)])
def test_a_systolic_array_takes_the_published_cycles(m: int, k: int, n: int, rows: int, columns: int):
    """ceil(M/R) ceil(N/C) (K + R + C - 2), as SCALE-Sim 3.0.0 counts (390,144 for the first): each block of the result
    fills and drains the array, which is an instruction's start-up, and takes one place of the contraction a cycle."""
    device = load_device("nnp-t-1400", {
        "grid.formats.bf16.positions": rows, "grid.formats.bf16.channels": columns, "grid.formats.bf16.depth": 1,
        "grid.startup": rows + columns - 2, "memories.sram.size": 1 << 30, "memories.sram.bandwidth": 1e18})
    a, b, c = (Buffer(name, "tpc0.sram", place << 24, "bf16", shape)
               for place, (name, shape) in enumerate({"a": (m, k), "b": (k, n), "c": (m, n)}.items()))
    program = Program("p", "nnp-t-1400", [
        Instruction("tpc0.grid", "matmul",
                    (Tile(c, (row, column), (min(rows, m - row), min(columns, n - column))),),
                    (Tile(a, (row, 0), (min(rows, m - row), k)), Tile(b, (0, column), (k, min(columns, n - column)))))
        for row in range(0, m, rows) for column in range(0, n, columns)])
    cycles = ceil(m / rows) * ceil(n / columns) * (k + rows + columns - 2)
    assert simulate(program, device).seconds * device.clock == pytest.approx(cycles)
    assert (m, k, n) != (1024, 700, 512) or cycles == 390_144
