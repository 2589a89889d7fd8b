"""What a calibration saw, from several threads, in one file and back; and files that are none."""

from __future__ import annotations

import json
import re
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import CalibrationError, ConfigError, UnsupportedError
from ngraph_mxnet.ir import Builder
from ngraph_mxnet.ir.graph import fingerprint
from ngraph_mxnet.quantisation.calibration import FORMAT, METHODS, VERSION, Calibration, Histogram, choose

NUMBERS = st.lists(st.one_of(st.floats(width=32), st.just(0.0)), max_size=20).map(np.float32)
SEEN = st.lists(st.tuples(st.text(max_size=6), NUMBERS), max_size=6)


def calibration_of(seen: list[tuple[str, np.ndarray]], digest: str | None = None) -> Calibration:
    calibration = Calibration(digest)
    for name, array in seen:
        calibration.observe(name, array)
        calibration.count_samples()
    return calibration


def content(histogram: Histogram) -> tuple:
    return (histogram.counts.tolist(), histogram.exponent, histogram.zeros, histogram.least, histogram.greatest,
            histogram.nonfinite)


def is_same(one: Calibration, other: Calibration) -> bool:
    return ((one.samples, one.fingerprint) == (other.samples, other.fingerprint)
            and {name: content(each) for name, each in one.items()}
            == {name: content(each) for name, each in other.items()})


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SEEN, st.none() | st.text())
def test_what_is_saved_is_loaded(tmp_path, seen, digest) -> None:
    calibration = calibration_of(seen, digest)
    calibration.save(tmp_path / "model.calibration")
    found = Calibration.load(tmp_path / "model.calibration")
    assert is_same(found, calibration) and list(found) == list(calibration)
    assert [path.name for path in tmp_path.iterdir()] == ["model.calibration"]
    for name, array in seen:
        found.observe(name, array)  # what was loaded goes on


@settings(deadline=None)
@given(SEEN, SEEN)
def test_merged_is_what_saw_both(first, second) -> None:
    merged, other = calibration_of(first, "a"), calibration_of(second)
    merged.merge(other)
    assert is_same(merged, calibration_of(first + second, "a"))
    assert is_same(other, calibration_of(second))


def test_a_calibration_merges_with_itself() -> None:
    calibration = calibration_of([("x", np.float32([1, 2]))])
    calibration.merge(calibration)
    assert calibration["x"].total == 4 and calibration.samples == 2


def test_models_are_told_apart_by_fingerprints() -> None:
    def graph(shape):
        b = Builder()
        b.results(b.relu(b.parameter("x", shape)))
        return b.graph

    one, other = (Calibration(fingerprint(graph(shape)).digest) for shape in ((2,), (3,)))
    with pytest.raises(CalibrationError, match=f"of the graph {other.fingerprint} and of {one.fingerprint}"):
        one.merge(other)
    unknown = Calibration()
    unknown.merge(one)
    assert unknown.fingerprint == one.fingerprint


def test_threads_observe_and_merge_at_once() -> None:
    arrays = [np.random.default_rng(seed).normal(size=2000).astype(np.float32) * 2**(seed % 5) for seed in range(16)]
    both, side = Calibration(), Calibration()
    start = threading.Barrier(16)

    def run(array: np.ndarray) -> None:
        start.wait()
        for calibration in (both, side):
            calibration.observe("x", array)
            calibration.count_samples()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(run, arrays))
    assert is_same(both, calibration_of([("x", array) for array in arrays])) and is_same(both, side)
    with ThreadPoolExecutor(2) as pool:  # into each other, at once
        list(pool.map(lambda pair: pair[0].merge(pair[1]), [(both, side), (side, both)]))
    assert both.samples + side.samples in (64, 80)  # of 16 and 16; in turns, the second sees the first's 32


@pytest.mark.parametrize("method", sorted(METHODS))
def test_ranges(method) -> None:
    array = np.random.default_rng(0).normal(1, 2, 10000).astype(np.float32)
    calibration = calibration_of([("x", array)])
    assert calibration.range("x", method) == choose(calibration["x"], method, 256)
    high = choose(calibration["x"].magnitudes(), method, 128)[1]
    assert calibration.range("x", method, symmetric=True) == (-high, high)


def test_ranges_that_cannot_be_chosen() -> None:
    calibration = calibration_of([("conv0", np.float32([1])), ("conv1", np.float32([1]))])
    with pytest.raises(CalibrationError, match="found no value 'conv2' to choose a range for; seen were conv0, conv1"):
        calibration.range("conv2", "mse")
    with pytest.raises(CalibrationError, match="seen were none"):
        Calibration().range("x", "mse")
    with pytest.raises(ConfigError, match="found method 'best'"):
        calibration.range("conv0", "best")
    with pytest.raises(UnsupportedError, match="complex64"):
        calibration.observe("conv0", np.zeros(1, np.complex64))


# ---- files ----------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.calibration"
    calibration_of([("x", np.float32([1, -2, 0])), ("y", np.float32([np.nan, 0]))], "digest").save(path)
    return path


def changed(path: Path, meta: dict | None = None, **arrays: np.ndarray) -> Path:
    """The file with other entries of `meta`, and other arrays."""
    with np.load(path) as archive:
        found = dict(archive)
    text = json.loads(found.pop("meta").tobytes()) | (meta or {})
    with path.open("wb") as file:
        np.savez(file, meta=np.frombuffer(json.dumps(text).encode(), np.uint8), **{**found, **arrays})
    return path


def test_files_of_others_are_told(tmp_path: Path, saved: Path) -> None:
    foreign = tmp_path / "other"
    foreign.write_bytes(b"something else")
    with pytest.raises(CalibrationError, match=f"can't read {foreign} as a file of calibration"):
        Calibration.load(foreign)
    with foreign.open("wb") as file:
        np.savez(file, weight=np.zeros(3))
    with pytest.raises(CalibrationError, match=r"There is no item named 'meta.npy'"):
        Calibration.load(foreign)
    with pytest.raises(CalibrationError, match="something else than a file of calibration"):
        Calibration.load(changed(saved, {"format": FORMAT + "s"}))
    with pytest.raises(FileNotFoundError):
        Calibration.load(tmp_path / "none")


def test_pickles_are_not_run(saved: Path) -> None:
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("a pickle ran",))

    with pytest.raises(CalibrationError, match="Object arrays cannot be loaded when allow_pickle=False"):
        Calibration.load(changed(saved, zeros=np.array([Trap(), Trap()])))


def test_versions_are_checked(saved: Path) -> None:
    later = VERSION + 1
    with pytest.raises(CalibrationError, match=rf"found version {later} of calibration in .*, expected {VERSION}"):
        Calibration.load(changed(saved, {"version": later}))


@pytest.mark.parametrize(("meta", "arrays", "text"), [
    ({"names": ["x"]}, {}, "found counts to be float64[2, 2, 2048]"),
    ({"names": ["x", "x"]}, {}, "found names, samples or fingerprint"),
    ({"names": ["x", 3]}, {}, "found names, samples or fingerprint"),
    ({"samples": -1}, {}, "found names, samples or fingerprint"),
    ({"fingerprint": 3}, {}, "found names, samples or fingerprint"),
    ({}, {"zeros": np.zeros(2, np.float32)}, "found zeros to be float32[2]"),
    ({}, {"zeros": np.array([-1.0, 0])}, "found a histogram of the value 'x'"),
    ({}, {"zeros": np.array([1.0, np.inf])}, "found a histogram of the value 'y'"),
    ({}, {"exponents": np.int16([200, -32768])}, "found a histogram of the value 'x'"),
    ({}, {"exponents": np.int16([-101, -32768])}, "found a histogram of the value 'x'"),
    ({}, {"exponents": np.int16([0, -32768])}, "found a histogram of the value 'x'"),
    ({}, {"exponents": np.int16([2, 1])}, "found a histogram of the value 'y'"),
    ({}, {"exponents": np.int16([-32768, -32768])}, "found a histogram of the value 'x'"),
    ({}, {"ends": np.array([[1.0, -1.0], [0, 0]])}, "found a histogram of the value 'x'"),
    ({}, {"ends": np.array([[-2.0, np.inf], [0, 0]])}, "found a histogram of the value 'x'"),
    ({}, {"ends": np.array([[-2.0, np.nan], [0, 0]])}, "found a histogram of the value 'x'"),
    ({}, {"ends": np.array([[-2.0, 1], [0, 5]])}, "found a histogram of the value 'y'"),
    ({}, {"nonfinite": np.array([0, -1])}, "found a histogram of the value 'y'"),
])
def test_what_does_not_fit_together_is_told(saved, meta, arrays, text) -> None:
    with pytest.raises(CalibrationError, match=re.escape(text)):
        Calibration.load(changed(saved, meta, **arrays))


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_are_told_or_the_same(saved, data) -> None:
    whole = saved.read_bytes()
    original, damaged = Calibration.load(saved), saved.with_name("damaged")
    if data.draw(st.booleans(), "truncated"):
        damaged.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    else:
        changed = bytearray(whole)
        changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
        damaged.write_bytes(changed)
    try:
        found = Calibration.load(damaged)
    except CalibrationError as error:
        told = str(error)
    else:
        told = str(damaged) if is_same(found, original) else "other numbers"
    assert str(damaged) in told


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # NumPy leaves its archive open
def test_a_file_that_cannot_be_written_leaves_the_old_one(saved: Path) -> None:
    """Of which there is room for a part: no file may be larger."""
    before, limits = saved.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            Calibration().save(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert saved.read_bytes() == before and list(saved.parent.iterdir()) == [saved]
