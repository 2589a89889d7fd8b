"""Programs and executables of the extension module, over kernels written here."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import carray, cfunc, types

from ngraph_mxnet import _core
from ngraph_mxnet.targets.cpu.machine.isa import NEEDS

ARENA, INPUT, OUTPUT, CONSTANT, PREPARED = range(5)
F32 = np.float32
ABI = types.void(types.CPointer(types.CPointer(types.float32)), types.CPointer(types.int64),
                 types.CPointer(types.float64), types.int64, types.int64)


@cfunc(ABI)
def add(tensors, ints, floats, begin, end):
    """t2 = t0 + t1, an element a task."""
    for i in range(begin, end):
        tensors[2][i] = tensors[0][i] + tensors[1][i]


@cfunc(ABI)
def scale(tensors, ints, floats, begin, end):
    """t1 = t0 * floats[0] + ints[0], an element a task."""
    for i in range(begin, end):
        tensors[1][i] = tensors[0][i] * floats[0] + ints[0]


@cfunc(ABI)
def count(tensors, ints, floats, begin, end):
    """t0[i] += 1: shows how often each task ran."""
    for i in range(begin, end):
        tensors[0][i] += 1


@cfunc(ABI)
def spin(tensors, ints, floats, begin, end):
    """t1[i] = t0[i], after ints[0] steps of pointless work."""
    for i in range(begin, end):
        value = tensors[0][i]
        for _ in range(ints[0]):
            value = value * 0.5 + 1.0
        tensors[1][i] = tensors[0][i] + (value - value)


@cfunc(ABI)
def running_sum(tensors, ints, floats, begin, end):
    """One task: t1[i] = t0[0] + ... + t0[i]."""
    source = carray(tensors[0], (ints[0],))
    total = F32(0)
    for i in range(ints[0]):
        total += source[i]
        tensors[1][i] = total


def call(kernel: Any, operands: Iterable[Sequence[int]], tasks: int, ints: Sequence[int] = (),
         floats: Sequence[float] = (), name: str = "kernel") -> tuple:
    return name, kernel.address, list(operands), list(ints), list(floats), tasks


def doubling(size: int, levels: int = 1, threads: int = 2) -> _core.Executable:
    """out = in * 2 ** levels, through the arena."""
    steps = [(INPUT, 0, 0), *((ARENA, 0, 64 * ((size * 4 + 63) // 64) * (i % 2)) for i in range(levels - 1)),
             (OUTPUT, 0, 0)]
    program = _core.BoundProgram([[call(scale, steps[i : i + 2], size, [0], [2.0])] for i in range(levels)],
                            size * 4 * 2 + 128, [])
    spec = [("f32", (size,))]
    return _core.Executable(program, None, 0, [], spec, spec, threads)


def with_weights(size: int = 1000, threads: int = 2, owner: object = None) -> _core.Executable:
    """out = data + prepared, where prepared = 3 * weights + 1."""
    main = _core.BoundProgram([[call(add, [(INPUT, 0, 0), (PREPARED, 0, 64), (OUTPUT, 0, 0)], size)]], 0, [], owner)
    prepare = _core.BoundProgram([[call(scale, [(INPUT, 1, 0), (PREPARED, 0, 64)], size, [1], [3.0])]], 0, [])
    spec = ("f32", (size,))
    return _core.Executable(main, prepare, size * 4 + 64, [1], [spec, spec], [spec], threads)


def run(executable: Any, *inputs: np.ndarray) -> np.ndarray:
    (element, shape), = executable.outputs
    out = np.full(shape, np.nan, {"f32": F32}[element])
    executable.run(list(inputs), [out])
    return out


def in_threads(count: int, body: Callable[[int], None]) -> None:
    """Run `body` in threads and re-raise what any of them raised."""
    errors: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            body(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# --- Programs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 2, 5, 47, 1001])
def test_levels_run_in_order(size, threads):
    data = np.arange(size, dtype=F32)
    executable = doubling(size, levels=9, threads=threads)
    for _ in range(20):
        np.testing.assert_array_equal(run(executable, data), data * 512)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_task_runs_once(threads):
    level = [call(count, [(OUTPUT, 0, 4 * start)], tasks)
             for start, tasks in ((0, 1), (1, 0), (1, 13), (14, 100), (114, 2))]
    program = _core.BoundProgram([level, level, level], 0, [])
    executable = _core.Executable(program, None, 0, [], [], [("f32", (116,))], threads)
    for _ in range(50):
        out = np.zeros(116, F32)
        executable.run([], [out])
        np.testing.assert_array_equal(out, 3)


def test_single_task_levels_between_shared_ones():
    size = 64
    place = [(ARENA, 0, 256 * i) for i in range(4)]
    program = _core.BoundProgram([
        [call(scale, [(INPUT, 0, 0), place[0]], size, [1], [1.0])],
        [call(running_sum, place[0:2], 1, [size])],
        [call(running_sum, place[1:3], 1, [size])],
        [call(scale, place[2:4], size, [0], [2.0])],
        [call(running_sum, [place[3], (OUTPUT, 0, 0)], 1, [size])],
    ], 1024, [])
    spec = [("f32", (size,))]
    executable = _core.Executable(program, None, 0, [], spec, spec, 2)
    data = np.arange(size, dtype=F32) % 3
    expected = np.cumsum(np.cumsum(np.cumsum(data + 1)) * 2)
    for _ in range(200):
        np.testing.assert_array_equal(run(executable, data), expected)


def test_constants_are_copied_and_offsets_are_bytes():
    constant = np.arange(20, dtype=F32)
    program = _core.BoundProgram([[call(add, [(INPUT, 0, 8), (CONSTANT, 1, 40), (OUTPUT, 0, 4)], 5)]], 0,
                            [np.zeros(3, np.int64), constant])
    constant[:] = -1
    executable = _core.Executable(program, None, 0, [], [("f32", (7,))], [("f32", (6,))], 2)
    out = run(executable, np.ones(7, F32))
    np.testing.assert_array_equal(out[1:], np.arange(10, 15) + 1)
    assert np.isnan(out[0])


def test_arena_starts_at_zero_and_is_kept():
    program = _core.BoundProgram([[call(count, [(ARENA, 0, 0)], 8)],
                             [call(scale, [(ARENA, 0, 0), (OUTPUT, 0, 0)], 8, [0], [1.0])]], 32, [])
    executable = _core.Executable(program, None, 0, [], [], [("f32", (8,))], 2)
    for calls in range(1, 4):
        np.testing.assert_array_equal(run(executable), calls)


@pytest.mark.parametrize(("shape", "tasks"), [((0,), 0), ((3, 0, 2), 0), ((), 1)])
def test_empty_and_scalar_tensors(shape, tasks):
    program = _core.BoundProgram([[call(scale, [(INPUT, 0, 0), (OUTPUT, 0, 0)], tasks, [1], [2.0])]], 0, [])
    executable = _core.Executable(program, None, 0, [], [("f32", shape)], [("f32", shape)], 2)
    np.testing.assert_array_equal(run(executable, np.full(shape, 4, F32)), np.full(shape, 9, F32))


def test_a_program_without_instructions_runs():
    executable = _core.Executable(_core.BoundProgram([[], []], 0, []), None, 0, [], [], [("f32", (1,))], 2)
    executable.run([], [np.zeros(1, F32)])


@pytest.mark.parametrize(("operand", "message"), [
    ((ARENA, 0, 65), "operand 0: byte offset 65 is beyond the arena of 64 bytes"),
    ((CONSTANT, 1, 0), "operand 0: constant 1 does not exist, there are 1"),
    ((CONSTANT, 0, 13), "byte offset 13 is beyond the constant of 12 bytes"),
    ((7, 0, 0), "unknown operand space 7"),
    ((0, 0), "an operand is"),
])
def test_program_rejects_bad_operands(operand, message):
    with pytest.raises(ValueError, match=message):
        _core.BoundProgram([[call(count, [operand], 1)]], 64, [np.zeros(3, F32)])


@pytest.mark.parametrize(("operand", "message"), [
    ((INPUT, 1, 0), "instruction 'kernel', operand 0: input 1 does not exist, there are 1"),
    ((INPUT, 0, 13), "byte offset 13 is beyond the input of 12 bytes"),
    ((OUTPUT, 2, 0), "output 2 does not exist"),
    ((PREPARED, 0, 4), "nothing was prepared"),
])
def test_executable_rejects_bad_operands(operand, message):
    program = _core.BoundProgram([[call(count, [operand], 1)]], 0, [])
    with pytest.raises(ValueError, match=message):
        _core.Executable(program, None, 0, [], [("f32", (3,))], [("f32", (3,))], 1)


def test_executable_rejects_bad_declarations():
    empty = _core.BoundProgram([], 0, [])
    with pytest.raises(ValueError, match="unknown element type 'float32'; known: bool, f16"):
        _core.Executable(empty, None, 0, [], [("float32", (3,))], [], 1)
    with pytest.raises(ValueError, match="threads must be at least 1"):
        _core.Executable(empty, None, 0, [], [], [], 0)
    with pytest.raises(ValueError, match="weight input 2 does not exist"):
        _core.Executable(empty, None, 0, [2], [("f32", ())], [], 1)
    with pytest.raises(ValueError, match="no prepare Program"):
        _core.Executable(empty, None, 64, [], [], [], 1)
    with pytest.raises(ValueError, match="has no kernel"):
        _core.BoundProgram([[("k", 0, [], [], [], 1)]], 0, [])
    with pytest.raises(ValueError, match="-1 tasks"):
        _core.BoundProgram([[call(count, [], -1)]], 0, [])


def test_prepare_may_read_weights_only():
    prepare = _core.BoundProgram([[call(scale, [(INPUT, 0, 0), (PREPARED, 0, 0)], 3, [1], [3.0])]], 0, [])
    with pytest.raises(ValueError, match="reads input 0, which is no weight"):
        _core.Executable(_core.BoundProgram([], 0, []), prepare, 64, [], [("f32", (3,))], [], 1)


# --- Arguments of run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bad", "error", "message"), [
    ([], ValueError, "got 0 inputs, expected 1"),
    ([[1.0] * 6], TypeError, "input 0 is a list, expected a NumPy array"),
    ([np.zeros(6)], TypeError, r"input 0 is float64\[6\], expected f32\[6\]"),
    ([np.zeros(6, np.int32)], TypeError, r"input 0 is int32\[6\], expected f32\[6\]"),
    ([np.zeros(6, ">f4")], TypeError, r"input 0 is >f4\[6\], expected f32\[6\]"),
    ([np.zeros((2, 3), F32)], ValueError, r"input 0 is float32\[2,3\], expected f32\[6\]"),
    ([np.zeros(12, F32)[::2]], ValueError, "input 0 is not C-contiguous"),
])
def test_run_checks_inputs(bad, error, message):
    with pytest.raises(error, match=message):
        doubling(6).run(bad, [np.zeros(6, F32)])


def test_run_checks_outputs():
    frozen = np.zeros(6, F32)
    frozen.flags.writeable = False
    data = [np.zeros(6, F32)]
    with pytest.raises(ValueError, match="output 0 is read-only"):
        doubling(6).run(data, [frozen])
    with pytest.raises(ValueError, match=r"output 0 is float32\[5\], expected f32\[6\]"):
        doubling(6).run(data, [np.zeros(5, F32)])
    doubling(6).run([frozen], [np.zeros(6, F32)])


@pytest.mark.parametrize(("name", "dtype"), [
    ("bool", "bool"), ("f16", "float16"), ("f32", "float32"), ("f64", "float64"), ("i8", "int8"), ("i16", "int16"),
    ("i32", "int32"), ("i64", "int64"), ("u8", "uint8"), ("u16", "uint16"), ("u32", "uint32"), ("u64", "uint64"),
])
def test_element_types(name, dtype):
    spec = [(name, (2, 3))]
    executable = _core.PythonExecutable(lambda inputs: inputs, spec, spec)
    data, out = np.arange(6).reshape(2, 3).astype(dtype), np.zeros((2, 3), dtype)
    executable.run([data], [out])
    np.testing.assert_array_equal(out, data)
    assert executable.inputs == [(name, [2, 3])]


# --- Prepare ----------------------------------------------------------------------------------------------


def test_prepare_runs_once_for_the_same_content():
    executable = with_weights()
    data, weights = np.ones(1000, F32), np.arange(1000, dtype=F32)
    for _ in range(3):
        np.testing.assert_array_equal(run(executable, data, weights), 3 * weights + 2)
    np.testing.assert_array_equal(run(executable, data, weights.copy()), 3 * weights + 2)
    assert executable.prepare_runs == 1


@pytest.mark.parametrize("changed", [0, 1, 499, 500, 998, 999])
def test_prepare_runs_again_for_any_change(changed):
    executable = with_weights()
    data, weights = np.ones(1000, F32), np.arange(1000, dtype=F32)
    run(executable, data, weights)
    weights[changed] += 0.5
    np.testing.assert_array_equal(run(executable, data, weights), 3 * weights + 2)
    assert executable.prepare_runs == 2


def test_prepare_runs_again_when_words_change_places():
    executable = with_weights()
    data, weights = np.ones(1000, F32), np.arange(1000, dtype=F32)
    run(executable, data, weights)
    for word in range(1, 16):
        moved = weights.copy()
        moved[0:2], moved[2 * word : 2 * word + 2] = weights[2 * word : 2 * word + 2], weights[0:2]
        np.testing.assert_array_equal(run(executable, data, moved), 3 * moved + 2)


def test_prepared_sets_are_kept_for_the_latest_eight():
    executable = with_weights()
    data = np.ones(1000, F32)
    for value in [*range(8), *range(8), 8, 1, 0]:  # 8 displaces 0, the least recently used
        np.testing.assert_array_equal(run(executable, data, np.full(1000, value, F32)), 3 * value + 2)
    assert executable.prepare_runs == 10


def test_executables_that_prepare_alike_share_what_they_prepared():
    """As a model does that was compiled for two shapes."""
    first, second, other = with_weights(1000), with_weights(1000), with_weights(1001)
    for executable, size in ((first, 1000), (second, 1000), (other, 1001)):
        weights = np.arange(size, dtype=F32)
        np.testing.assert_array_equal(run(executable, np.ones(size, F32), weights), 3 * weights + 2)
    assert [executable.prepare_runs for executable in (first, second, other)] == [1, 0, 1]


def test_executables_that_prepare_alike_do_not_displace_each_others_weights():
    """As alike layers do that became regions of their own."""
    executables, data = [with_weights() for _ in range(12)], np.ones(1000, F32)
    for value in [*range(12), *range(12)]:
        out = run(executables[value], data, np.full(1000, value, F32))
        np.testing.assert_array_equal(out, 3 * value + 2)
    assert [executable.prepare_runs for executable in executables] == [1] * 12


def test_threads_that_need_the_same_weights_prepare_once():
    size = 400_000
    executable = with_weights(size)
    data, weights = np.ones(size, F32), np.arange(size, dtype=F32)
    in_threads(4, lambda _: np.testing.assert_array_equal(run(executable, data, weights), 3 * weights + 2))
    assert executable.prepare_runs == 1


def test_threads_with_different_weights_do_not_disturb_each_other():
    executable = with_weights()

    def body(index: int) -> None:
        for step in range(60):
            value = index * 5 + step % 3
            out = run(executable, np.ones(1000, F32), np.full(1000, value, F32))
            np.testing.assert_array_equal(out, 3 * value + 2)

    in_threads(4, body)


def keep_writing(target: np.ndarray, contents: list[np.ndarray], over: threading.Event) -> None:
    while not over.is_set():
        for content in contents:
            target[:] = content


def test_a_set_is_prepared_from_what_was_hashed():
    """Though somebody writes to the weights between the hash and the preparing: they are read twice."""
    size = 1 << 20
    executable, data = with_weights(size), np.ones(size, F32)
    contents = [np.full(size, value, F32) for value in (1, 2)]
    for round_ in range(8):
        contents[0][round_], contents[1][round_] = 3, 4  # both are new
        weights = contents[0].copy()
        over = threading.Event()
        writer = threading.Thread(target=keep_writing, args=(weights, contents, over))
        writer.start()
        for _ in range(4):
            run(executable, data, weights)
        over.set()
        writer.join()
        for content in contents:
            weights[:] = content
            np.testing.assert_array_equal(run(executable, data, weights), 3 * content + 2)


# --- Threads and processes --------------------------------------------------------------------------------


def test_concurrent_calls_own_their_arenas():
    executable = doubling(5000, levels=6)

    def body(index: int) -> None:
        data = np.full(5000, index + 1, F32)
        for _ in range(50):
            np.testing.assert_array_equal(run(executable, data), data * 64)

    in_threads(6, body)


def test_run_releases_the_gil():
    program = _core.BoundProgram([[call(spin, [(INPUT, 0, 0), (OUTPUT, 0, 0)], 1, [100_000_000])]], 0, [])
    executable = _core.Executable(program, None, 0, [], [("f32", (1,))], [("f32", (1,))], 1)
    thread = threading.Thread(target=run, args=(executable, np.ones(1, F32)))
    thread.start()
    ticks = 0
    while thread.is_alive():
        ticks += 1
        time.sleep(0.001)
    assert ticks > 5


def test_more_threads_than_cores():
    executable = doubling(3000, levels=20, threads=3 * (os.cpu_count() or 1))
    data = np.arange(3000, dtype=F32)
    for _ in range(5):
        np.testing.assert_array_equal(run(executable, data), data * 2.0**20)


def wait_for_child(pid: int, seconds: float = 60) -> int:
    """The exit code; a child that hangs is killed and counts as 99."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return 99


def forked(body: Callable[[], bool]) -> int:
    """The exit code of a forked child: 0 when `body` returned true."""
    pid = os.fork()
    if pid == 0:
        code = 98
        try:
            code = 0 if body() else 1
        finally:
            os._exit(code)
    return wait_for_child(pid)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_runs_in_parallel_and_so_does_its_child():
    executable, data = doubling(4000, levels=5), np.arange(4000, dtype=F32)

    def right() -> bool:
        return all(np.array_equal(run(executable, data), data * 32) for _ in range(20))

    assert right()
    assert forked(right) == 0
    assert forked(lambda: right() and forked(right) == 0) == 0
    assert forked(lambda: forked(right) == 0) == 0
    assert right()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_new_thread_of_a_forked_child():
    executable, data = doubling(4000, levels=5), np.arange(4000, dtype=F32)
    run(executable, data)

    def body() -> bool:
        in_threads(2, lambda _: np.testing.assert_array_equal(run(executable, data), data * 32))
        return True

    assert forked(body) == 0


# --- The rest ---------------------------------------------------------------------------------------------


def test_profile_names_every_instruction():
    program = _core.BoundProgram([
        [call(spin, [(INPUT, 0, 0), (OUTPUT, 0, 0)], 4, [300_000], name="slow"),
         call(count, [(ARENA, 0, 0)], 0, name="empty")],
        [call(count, [(ARENA, 0, 0)], 4, name="fast")],
    ], 16, [])
    executable = _core.Executable(program, None, 0, [], [("f32", (4,))], [("f32", (4,))], 2)
    out = np.zeros(4, F32)
    profile = executable.profile([np.arange(4, dtype=F32)], [out])
    assert [name for name, _ in profile] == ["slow", "empty", "fast"]
    assert profile[0][1] > 1e-4  # a core can't do it faster
    assert min(seconds for _, seconds in profile) >= 0
    np.testing.assert_array_equal(out, np.arange(4))


class Owner:
    """Something to keep alive."""


def test_the_owner_of_the_code_lives_as_long_as_the_executable():
    import weakref

    owner = Owner()
    alive = weakref.ref(owner)
    executable = with_weights(owner=owner)
    del owner
    assert alive() is not None
    del executable
    assert alive() is None


def test_python_executable_reports_what_the_callable_did():
    spec = [("f32", (2,))]
    data, out = np.ones(2, F32), np.zeros(2, F32)

    def failing(inputs):
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        _core.PythonExecutable(failing, spec, spec).run([data], [out])
    with pytest.raises(ValueError, match="got 2 results, expected 1"):
        _core.PythonExecutable(lambda inputs: [*inputs, *inputs], spec, spec).run([data], [out])
    with pytest.raises(TypeError, match=r"result 0 is float64\[2\], expected f32\[2\]"):
        _core.PythonExecutable(lambda inputs: [np.zeros(2)], spec, spec).run([data], [out])
    _core.PythonExecutable(lambda inputs: [inputs[0][::-1]], spec, spec).run([np.array([1, 2], F32)], [out])
    np.testing.assert_array_equal(out, [2, 1])


def test_python_executable_gives_read_only_views_and_takes_scalars():
    flags = []

    def callable_(inputs):
        flags.append(inputs[0].flags.writeable)
        return [np.asarray(inputs[0].sum(), F32)]

    executable = _core.PythonExecutable(callable_, [("f32", (3,))], [("f32", ())])
    assert run(executable, np.arange(3, dtype=F32)) == 3
    assert flags == [False]


def test_cpu_features_agree_with_the_kernel():
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    linux = {"sse3": "pni", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "sahf": "lahf_lm", "lzcnt": "abm", "bmi": "bmi1",
             "avxvnni": "avx_vnni", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16",
             "amx-tile": "amx_tile", "amx-bf16": "amx_bf16", "amx-int8": "amx_int8",
             "avx512vp2intersect": "avx512_vp2intersect"}
    features = _core.cpu_features()
    for name, there in features.items():
        has = linux.get(name, name) in flags
        assert there == has or (name.startswith("amx") and not there)  # whose tiles the system may refuse
    assert set(NEEDS["avx512"]) <= set(features)


IN_ANOTHER = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
other = interpreters.create()
interpreters.run_string(other, '''
try:
    import ngraph_mxnet
except ImportError as error:
    print(error, flush=True)
''')
interpreters.destroy(other)
"""


def test_other_interpreters_are_refused():
    """Where the library's import would not end."""
    done = subprocess.run([sys.executable, "-c", IN_ANOTHER], capture_output=True, text=True, timeout=120, check=True)
    assert "in a subinterpreter; it runs in a process's main interpreter alone" in done.stdout


def test_kernel_address_of_an_unknown_kernel():
    with pytest.raises(KeyError, match="no kernel 'ng_no_such__avx2'"):
        _core.kernel_address("ng_no_such__avx2")


def test_the_floating_point_environment_is_left_alone():
    tiny = np.full(4, 1e-42, F32)
    program = _core.BoundProgram([[call(scale, [(INPUT, 0, 0), (OUTPUT, 0, 0)], 4, [0], [1.0])]], 0, [])
    executable = _core.Executable(program, None, 0, [], [("f32", (4,))], [("f32", (4,))], 2)
    np.testing.assert_array_equal(run(executable, tiny), tiny)
    assert tiny[0] * F32(1) != 0


def test_callers_share_the_threads():
    """Eight callers, each of which wants a team of four, do not make eight teams' threads."""
    program = _core.BoundProgram([[call(scale, [(INPUT, 0, 0), (OUTPUT, 0, 0)], 4, [0], [1.0])]], 0, [])
    executable = _core.Executable(program, None, 0, [], [("f32", (4,))], [("f32", (4,))], 4)
    data = np.arange(4, dtype=F32)

    def work() -> bool:
        return all(np.array_equal(run(executable, data + i), data + i) for i in range(300))

    before = len(os.listdir("/proc/self/task"))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: work(), range(8)))
    assert len(os.listdir("/proc/self/task")) <= before + max(4, len(os.sched_getaffinity(0)))


def test_one_openmp_runtime_is_loaded():
    libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    assert ctypes.CDLL("libgomp.so.1")
    assert not any("libiomp" in path or "libomp" in path for path in libraries)
