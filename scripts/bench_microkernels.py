"""GFLOP/s of the contraction kernels on networks' layers, and the share of the core's measured peak.

    python scripts/bench_microkernels.py [--isa avx2] [--threads 1] [--batch 1] [--seconds 0.3]

Float32, the best of many repetitions; padding lies in the input's halo. As in a network, a layer's weights
are not in the core's caches: repetitions take turns at 64 MB of them. One thread is timed by its CPU time,
so that a busy machine matters less; several split the task range evenly and run a layer together, as the
executor's team does. The peak is a loop of independent multiply-adds without memory operands; with several
threads it is that times their number.
"""

from __future__ import annotations

import argparse
import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np

from ngraph_mxnet.targets.cpu.microkernels import target
from ngraph_mxnet.targets.cpu.microkernels.params import contraction_params
from ngraph_mxnet.targets.cpu.microkernels.tables import Plane, pixel_table, step_table
from ngraph_mxnet.targets.cpu.microkernels.tiles import ContractionSize, Wanted, choose_tiles
from ngraph_mxnet.targets.cpu.microkernels.variants import ISAS, Isa, Kind

_KERNEL = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
_WEIGHT_BYTES = 64 << 20
_PEAK_LANES = {"avx512": 16, "avx2": 8, "baseline": 4}


@dataclass(frozen=True)
class Layer:
    """A square convolution without groups; `size` is the output's, `kind` depthwise has `oc` channels."""

    name: str
    ic: int
    oc: int
    size: int
    kernel: int = 1
    stride: int = 1
    kind: Kind = "k16"

    @property
    def flops(self) -> int:
        """Two per multiply-add."""
        ic = 1 if self.kind == "depthwise" else self.ic
        return 2 * ic * self.oc * self.size**2 * self.kernel**2


def zoo_layers() -> list[Layer]:
    """The distinct layers of ResNet-50, then some of VGG-16 and MobileNet."""
    layers = [Layer("stem 7x7/2", 3, 64, 112, 7, 2, "k1")]
    for size, mid in ((56, 64), (28, 128), (14, 256), (7, 512)):
        previous = 64 if size == 56 else 2 * mid
        layers.append(Layer(f"1x1 @{size}", 4 * mid, mid, size))
        layers.append(Layer(f"3x3 @{size}", mid, mid, size, 3))
        layers.append(Layer(f"1x1 expand @{size}", mid, 4 * mid, size))
        if size != 56:
            layers.append(Layer(f"3x3/2 @{size}", mid, mid, size, 3, 2))
            layers.append(Layer(f"1x1/2 @{size}", previous, 4 * mid, size, 1, 2))
        else:
            layers.append(Layer("1x1 first @56", 64, 64, 56))
    layers.append(Layer("fully connected", 2048, 1000, 1))
    layers.append(Layer("VGG 3x3 @56", 256, 256, 56, 3))
    layers.append(Layer("VGG 3x3 @28", 512, 512, 28, 3))
    layers.append(Layer("MobileNet 1x1 @14", 512, 512, 14))
    layers.append(Layer("MobileNet 1x1 @7", 1024, 1024, 7))
    layers.append(Layer("depthwise 3x3 @28", 256, 256, 28, 3, kind="depthwise"))
    return layers


def aligned(count: int, rng: np.random.Generator) -> np.ndarray:
    """Random float32 values on a page boundary, every page written."""
    room = np.zeros(count + 1024, np.float32)
    start = -room.ctypes.data % 4096 // 4
    room[start : start + count] = rng.standard_normal(count, dtype=np.float32)
    return room[start : start + count]


def prepare(
    layer: Layer, isa: Isa, threads: int, batch: int
) -> tuple[Callable[[int, int, int], None], int]:
    """The layer's function of (number of the pass, first task, end), and its number of tasks."""
    rng = np.random.default_rng(0)
    size, pad = layer.size, layer.kernel // 2
    in_size = size * layer.stride
    depthwise = layer.kind == "depthwise"
    lanes = 1 if layer.kind == "k1" else 16
    blocks, out_blocks = -(-layer.ic // lanes), -(-layer.oc // 16)
    width = in_size + 2 * pad
    pixel = 4 * lanes
    channel_stride = width * width * pixel
    channels = out_blocks if depthwise else blocks
    plane = Plane(width * pixel, pixel, channels * channel_stride)
    output = Plane.blocked(size, size, out_blocks)
    steps = step_table(
        plane, channels=1 if depthwise else blocks, channel_stride=channel_stride, kernel=(layer.kernel,) * 2
    ).table()
    groups, group_blocks = (out_blocks, 1) if depthwise else (1, out_blocks)
    contraction = ContractionSize(
        batch, size, size, group_blocks, steps=steps.size, groups=groups, stride=layer.stride**2,
        flat_input=layer.kernel == 1 and layer.stride == 1, pixel_bytes=blocks * pixel,
    )
    choice = choose_tiles(Wanted(isa), layer.kind, contraction, threads=threads)
    pixels = pixel_table(
        size, size, inputs=plane, output=output, stride=(layer.stride,) * 2, padding=(pad, pad),
        images=choice.table_images,
    ).table()
    params = contraction_params(
        **choice.fields(), steps=steps.size, pixel_stride=pixel * layer.stride,
        input=(plane.image, channel_stride), output=(output.image, size * size * 64), lower=0.0,
    )
    image = aligned(batch * plane.image // 4, rng)
    panel = steps.size * (16 if layer.kind == "k16" else 1) * choice.oc_tile
    count = choice.groups * choice.oc_groups * panel
    copies = max(1, _WEIGHT_BYTES // (4 * count)) if count > 4096 else 1
    weights = [aligned(count, rng) for _ in range(min(copies, 256))]
    bias = aligned(choice.groups * choice.oc_groups * choice.oc_tile, rng)
    result = aligned(batch * out_blocks * size * size * 16, rng)
    address = image.ctypes.data + pad * (width + 1) * pixel
    rest = [bias.ctypes.data, result.ctypes.data, 0, pixels.ctypes.data, steps.ctypes.data, 0, 0, 0]
    pointers = np.array([[address, copy.ctypes.data, *rest] for copy in weights], np.uint64)
    ints, floats = np.array(params.ints(), np.int64), np.array(params.floats(), np.float64)
    kernel = _KERNEL(target.load(isa)[choice.symbol])
    keep = (image, weights, bias, result, pixels, steps, pointers, ints, floats)
    operands, parameters = pointers.ctypes.data, (ints.ctypes.data, floats.ctypes.data)

    def tasks(number: int, begin: int, end: int, _keep: object = keep) -> None:
        kernel(operands + number % len(weights) * pointers.strides[0], *parameters, begin, end)

    return tasks, params.tasks


def best_seconds(work: Callable[[int, int, int], None], tasks: int, threads: int, seconds: float) -> float:
    """Shortest time of one pass over all tasks."""
    best = float("inf")
    now = time.thread_time if threads == 1 else time.perf_counter
    stop = threading.Event()
    gate = threading.Barrier(threads)
    edges = [tasks * i // threads for i in range(threads + 1)]

    def member(i: int) -> None:
        nonlocal best
        deadline = now() + seconds
        number = 0
        while True:
            gate.wait()
            if stop.is_set():
                return
            start = now()
            for _ in range(repeats):
                work(number, edges[i], edges[i + 1])
                number += 1
            gate.wait()
            if i == 0:
                best = min(best, (now() - start) / repeats)
                if now() > deadline:
                    stop.set()

    repeats = 1
    start = time.perf_counter()
    work(0, 0, tasks)
    # Passes of a millisecond or more hide the cost of the Python barrier.
    repeats = max(1, int((1e-3 if threads == 1 else 1e-2) / (time.perf_counter() - start)))
    team = [threading.Thread(target=member, args=(i,)) for i in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    return best


def measure_peak(isa: Isa) -> float:
    """GFLOP/s of one core: 12 independent chains of multiply-adds in registers."""
    kind = f"<{_PEAK_LANES[isa]} x float>"
    fma = f"@llvm.{'fmuladd' if isa == 'baseline' else 'fma'}.v{_PEAK_LANES[isa]}f32"
    phis = "\n".join(f"%a{i} = phi {kind} [ %x, %entry ], [ %b{i}, %loop ]" for i in range(12))
    body = "\n".join(f"%b{i} = call {kind} {fma}({kind} %x, {kind} %y, {kind} %a{i})" for i in range(12))
    sums = "\n".join(f"%s{i + 1} = fadd {kind} %s{i}, %b{i + 1}" for i in range(11)).replace("%s0", "%b0")
    text = f"""
    declare {kind} {fma}({kind}, {kind}, {kind})
    define void @peak(ptr %p, i64 %n) {{
    entry:
      %x = load {kind}, ptr %p, align 4
      %q = getelementptr i8, ptr %p, i64 64
      %y = load {kind}, ptr %q, align 4
      br label %loop
    loop:
      %i = phi i64 [ 0, %entry ], [ %j, %loop ]
      {phis}
      {body}
      %j = add i64 %i, 1
      %more = icmp slt i64 %j, %n
      br i1 %more, label %loop, label %done
    done:
      {sums}
      store {kind} %s11, ptr %p, align 4
      ret void
    }}"""
    machine = target.target_machine(isa, jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("peak"))
    room = np.zeros(32, np.float32)
    best = float("inf")
    for _ in range(300):
        start = time.perf_counter()
        call(room.ctypes.data, 200_000)
        best = min(best, time.perf_counter() - start)
    return 200_000 * 12 * _PEAK_LANES[isa] * 2 / best / 1e9


def main() -> None:
    """Prints one line per layer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", choices=ISAS, default="avx2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3)
    options = parser.parse_args()
    peak = measure_peak(options.isa) * options.threads
    print(f"{options.isa}, {options.threads} thread(s): peak {peak:.1f} GFLOP/s")
    for layer in zoo_layers():
        work, tasks = prepare(layer, options.isa, options.threads, options.batch)
        seconds = best_seconds(work, tasks, options.threads, options.seconds)
        rate = options.batch * layer.flops / seconds / 1e9
        print(
            f"{layer.name:20} {seconds * 1e6:9.1f} us {rate:7.1f} GFLOP/s {rate / peak:6.1%}  {tasks} tasks"
        )


if __name__ == "__main__":
    main()
