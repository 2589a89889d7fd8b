"""Checkpoints are whole, whenever the process ends."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest

from ngraph_mxnet.plugin.kvstore import store


@pytest.fixture(autouse=True)
def atomic() -> Iterator[None]:
    store.make_saves_atomic()
    yield
    store.remove()


def net() -> mx.gluon.nn.HybridSequential:
    made = mx.gluon.nn.HybridSequential()
    made.add(mx.gluon.nn.Dense(3, in_units=2))
    made.initialize(mx.init.One())
    made.hybridize()
    made(mx.nd.ones((1, 2)))
    return made


def save_states(folder: Path) -> None:
    trainer = mx.gluon.Trainer(net().collect_params(), "sgd", {"momentum": 0.9}, kvstore=None)
    trainer.save_states(str(folder / "trainer.states"))


def save_checkpoint(folder: Path) -> None:
    module = mx.mod.Module(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="full"), label_names=None)
    module.bind([("data", (1, 2))])
    module.init_params(mx.init.One())
    module.init_optimizer(kvstore=None)
    module.save_checkpoint(str(folder / "module"), 1, save_optimizer_states=True)


SAVES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "arrays": (lambda folder: mx.nd.save(str(folder / "arrays"), {"a": mx.nd.ones((2, 3))}), ["arrays"]),
    "parameters": (lambda folder: net().save_parameters(str(folder / "net.params")), ["net.params"]),
    "export": (lambda folder: net().export(str(folder / "net"), 3), ["net-0003.params", "net-symbol.json"]),
    "states": (save_states, ["trainer.states"]),
    "checkpoint": (save_checkpoint, ["module-0001.params", "module-0001.states", "module-symbol.json"]),
}


@pytest.mark.parametrize("kind", SAVES)
def test_files_are_replaced_by_whole_ones(tmp_path: Path, kind: str) -> None:
    save, names = SAVES[kind]
    save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == names
    before = {name: (tmp_path / name).stat().st_ino for name in names}
    contents = {name: (tmp_path / name).read_bytes() for name in names}
    held = [(tmp_path / name).open("rb") for name in names]  # so that their numbers are not given anew
    (tmp_path / names[0]).chmod(0o640)
    save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == names
    for file, name in zip(held, names, strict=True):
        with file:
            assert (tmp_path / name).stat().st_ino != before[name] and file.read() == contents[name]
    assert stat.S_IMODE((tmp_path / names[0]).stat().st_mode) == 0o640


def test_links_stay(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "arrays")
    mx.nd.save(str(tmp_path / "link"), [mx.nd.ones((2,))])
    assert (tmp_path / "link").is_symlink() and len(mx.nd.load(str(tmp_path / "elsewhere" / "arrays"))) == 1


def test_numpy_arrays_are_saved_so_too(tmp_path: Path) -> None:
    path = tmp_path / "arrays"
    path.write_bytes(b"old")
    before = path.stat().st_ino
    with path.open("rb"), mx.util.np_shape(True), mx.util.np_array(True):
        mx.npx.save(str(path), {"a": mx.np.ones((2,))})
        assert path.stat().st_ino != before
        np.testing.assert_array_equal(mx.npx.load(str(path))["a"].asnumpy(), np.ones(2))


def test_what_is_no_file_is_mxnets(tmp_path: Path) -> None:
    with pytest.raises(mx.base.MXNetError, match="nowhere/arrays"):
        mx.nd.save(str(tmp_path / "nowhere" / "arrays"), [mx.nd.ones((2,))])
    mx.nd.save("/dev/null", [mx.nd.ones((2,))])
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "arrays"
    mx.nd.save(str(path), [mx.nd.ones((2,))])
    big = mx.nd.ones((1 << 18,))
    big.wait_to_read()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(mx.base.MXNetError):
            mx.nd.save(str(path), [big])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == ["arrays"] and mx.nd.load(str(path))[0].shape == (2,)


PROGRAM = """
import sys, time
import mxnet as mx
from ngraph_mxnet.plugin.kvstore import store

def half(name, *arguments):
    with open(name.value, "wb") as file:
        file.write(b"half of an arr")
        file.flush()
        print("writes", flush=True)
        time.sleep(60)

mx.base._LIB.MXNDArraySave = half
store.make_saves_atomic()
mx.nd.save(sys.argv[1], [mx.nd.ones((2,))])
"""


def test_a_process_killed_while_it_saves_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "arrays"
    mx.nd.save(str(path), [mx.nd.ones((2,))])
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "writes\n"
        process.kill()
    assert [(tmp_path / name).stat().st_size for name in os.listdir(tmp_path) if name != "arrays"] == [14]
    assert mx.nd.load(str(path))[0].shape == (2,)


def test_removed_is_as_before() -> None:
    store.remove()
    stock = mx.base._LIB.MXNDArraySave, mx.gluon.Trainer.save_states
    store.make_saves_atomic()
    store.make_saves_atomic()
    assert mx.base._LIB.MXNDArraySave is not stock[0] and mx.gluon.Trainer.save_states is not stock[1]
    store.remove()
    assert (mx.base._LIB.MXNDArraySave, mx.gluon.Trainer.save_states) == stock
