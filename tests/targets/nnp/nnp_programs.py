"""Random programs for the simulated NNP: valid, with buffers that share bytes and tiles that overlap."""

from __future__ import annotations

from hypothesis import strategies as st

from ngraph_mxnet.targets.nnp.device import Device, load_device, owner
from ngraph_mxnet.targets.nnp.program import Buffer, Instruction, Program, Tile

DEVICE = "nnp-i-1100"
SPACE = 512
"""Bytes of each memory that random programs use: little, so that they collide."""


@st.composite
def buffers(draw, device: Device, memory: str) -> Buffer:
    element = draw(st.sampled_from(["i8", "f32"]))
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    size = Buffer("", memory, 0, element, shape).bytes
    name = f"{memory} {draw(st.integers(0, 9))}"
    return Buffer(name, memory, draw(st.integers(0, SPACE - size)), element, shape)


@st.composite
def tiles(draw, pool: list[Buffer]) -> Tile:
    buffer = draw(st.sampled_from(pool))
    begin = tuple(draw(st.integers(0, size - 1)) for size in buffer.shape)
    shape = tuple(draw(st.integers(1, size - start)) for size, start in zip(buffer.shape, begin, strict=True))
    return Tile(buffer, begin, shape)


@st.composite
def programs(draw, most: int = 30, engines: int = 2) -> Program:
    """Up to `most` copies, fills, elementwise operations and barriers."""
    device = load_device(DEVICE)
    names = ["host", "dram", "llc", *(f"ice{i}.{level}" for i in range(engines) for level in ("sram", "tcm"))]
    pools = {name: draw(st.lists(buffers(device, name), min_size=1, max_size=4)) for name in names}
    units = [unit for unit in device.units if owner(unit) in ("host", *(f"ice{i}" for i in range(engines)))]
    program = Program("random", DEVICE)
    for number in range(draw(st.integers(1, most))):
        unit = draw(st.sampled_from(units))
        kind, place = device.unit_kind(unit), owner(unit)
        if kind == "grid" or draw(st.integers(0, 9)) == 0:
            after = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
            program.instructions.append(Instruction(unit, "barrier", (), (), after=tuple(sorted(after))))
            continue
        near = [pools[name] for name in names if owner(name) == place]
        if place == "host":
            near = [pools["host"]]
        elif kind == "dma":
            near += [pools["dram"], pools["llc"]]
        written = draw(tiles(draw(st.sampled_from(near))))
        if draw(st.booleans()):
            program.instructions.append(Instruction(unit, "fill", (written,), (), {"value": 1.0}))
            continue
        far = near if kind == "vector" else [pool for name, pool in pools.items() if name != "host" or place == "host"]
        same = [buffer for pool in far for buffer in pool if buffer.element == written.element
                and len(buffer.shape) == len(written.shape)
                and all(a >= b for a, b in zip(buffer.shape, written.shape, strict=True))]
        if not same:
            continue
        source = draw(st.sampled_from(same))
        begin = tuple(draw(st.integers(0, a - b)) for a, b in zip(source.shape, written.shape, strict=True))
        read = Tile(source, begin, written.shape)
        if kind == "vector":
            program.instructions.append(Instruction(unit, "vector", (written,), (read,), {"op": "relu"}))
        else:
            program.instructions.append(Instruction(unit, "copy", (written,), (read,)))
    return program
