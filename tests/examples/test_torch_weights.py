"""The reader of old PyTorch checkpoints, on files made here with the pickle opcodes that PyTorch writes."""

from __future__ import annotations

import importlib.util
import pickle
import struct
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


torch_weights = load_example("torch_weights")


class Global:
    """Pickles as a reference to `module.name`."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Tensor:
    """Pickles as a call of `rebuild` with a storage."""

    def __init__(
        self,
        storage: tuple[str, str, int],
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        rebuild: Global | None = None,
    ) -> None:
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides
        self.rebuild = rebuild or Global("torch._utils", "_rebuild_tensor_v2")


class Pickler(pickle._Pickler):  # the Python one: save_global must be replaced
    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, tuple) and len(value) == 4 and value[0] == "storage":
            _, kind, key, size = value
            return ("storage", Global("torch", kind), key, "cpu", size, None)
        return None

    def save(self, value: Any, save_persistent_id: bool = True) -> None:
        if isinstance(value, Global):
            self.write(b"c" + f"{value.module}\n{value.name}\n".encode())
        elif isinstance(value, Tensor):
            self.save(value.rebuild)
            self.save(
                (("storage", *value.storage), value.offset, value.shape, value.strides, False, OrderedDict())
            )
            self.write(pickle.REDUCE)
        else:
            super().save(value, save_persistent_id)


def write_checkpoint(
    path: Path, tensors: dict[str, Any], storages: dict[str, np.ndarray], magic: int = 0x1950A86A20F9469CFC6C
) -> Path:
    with path.open("wb") as file:
        for value in (magic, 1001, {"little_endian": True}, OrderedDict(tensors), list(storages)):
            Pickler(file, protocol=2).dump(value)
        for elements in storages.values():
            file.write(struct.pack("<q", elements.size) + elements.tobytes())
    return path


FLOATS = np.arange(24, dtype="<f4")


def test_offsets_strides_and_shared_storages_are_honoured(tmp_path: Path) -> None:
    storage = ("FloatStorage", "a", 24)
    tensors = {
        "plain": Tensor(storage, 0, (4, 6), (6, 1)),
        "transposed": Tensor(storage, 0, (6, 4), (1, 6)),
        "part": Tensor(storage, 8, (2, 3), (6, 1)),
        "expanded": Tensor(storage, 5, (3,), (0,)),
        "scalar": Tensor(("LongStorage", "b", 1), 0, (), ()),
        "empty": Tensor(storage, 0, (0, 3), (3, 1)),
    }
    path = write_checkpoint(tmp_path / "x.pth", tensors, {"a": FLOATS, "b": np.array([7], "<i8")})
    read = torch_weights.load_state_dict(path)
    grid = FLOATS.reshape(4, 6)
    np.testing.assert_array_equal(read["plain"], grid)
    np.testing.assert_array_equal(read["transposed"], grid.T)
    np.testing.assert_array_equal(read["part"], grid[1:3, 2:5])
    np.testing.assert_array_equal(read["expanded"], [5, 5, 5])
    assert read["scalar"] == 7
    assert read["scalar"].dtype == np.int64
    assert read["empty"].shape == (0, 3)
    assert all(array.flags.owndata for array in read.values())


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [(1, (4, 6), (6, 1)), (0, (5,), (6,)), (-1, (2,), (1,)), (23, (2,), (-1,)), (0, (2, 2), (1,))],
)
def test_a_tensor_outside_its_storage_is_refused(
    tmp_path: Path, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    tensor = Tensor(("FloatStorage", "a", 24), offset, shape, strides)
    path = write_checkpoint(tmp_path / "x.pth", {"t": tensor}, {"a": FLOATS})
    with pytest.raises(torch_weights.CheckpointError, match="tensor"):
        torch_weights.load_state_dict(path)


@pytest.mark.parametrize(
    ("module", "name"), [("os", "system"), ("builtins", "eval"), ("torch", "HalfStorage"), ("numpy", "load")]
)
def test_other_names_are_refused(tmp_path: Path, module: str, name: str) -> None:
    tensor = Tensor(("FloatStorage", "a", 24), 0, (24,), (1,), rebuild=Global(module, name))
    path = write_checkpoint(tmp_path / "x.pth", {"t": tensor}, {"a": FLOATS})
    with pytest.raises(torch_weights.CheckpointError, match=f"{module}.{name}, which is not allowed"):
        torch_weights.load_state_dict(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    tensors = {"t": Tensor(("FloatStorage", "a", 24), 0, (24,), (1,))}
    good = write_checkpoint(tmp_path / "good.pth", tensors, {"a": FLOATS}).read_bytes()
    damaged = tmp_path / "damaged.pth"
    for length in (0, 5, 40, len(good) - 60, len(good) - 1):
        damaged.write_bytes(good[:length])
        with pytest.raises(torch_weights.CheckpointError):
            torch_weights.load_state_dict(damaged)
    damaged.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(torch_weights.CheckpointError):
        torch_weights.load_state_dict(damaged)
    write_checkpoint(damaged, tensors, {"a": FLOATS}, magic=1)
    with pytest.raises(torch_weights.CheckpointError, match="magic"):
        torch_weights.load_state_dict(damaged)
    write_checkpoint(damaged, tensors, {"b": FLOATS})
    with pytest.raises(torch_weights.CheckpointError, match="list of storages"):
        torch_weights.load_state_dict(damaged)
