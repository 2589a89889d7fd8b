"""Finds the model of a folder, compiles it once, and keeps the compiled file."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator, Mapping, NamedTuple, Sequence, Union

from ngraph_runtime.errors import ModelError
from ngraph_runtime.model import Model
from ngraph_runtime.serving.served import ServedModel

COMPILER = "NGRAPH_RUNTIME_COMPILER"
CACHE = "NGRAPH_RUNTIME_CACHE"
SEED = "NGRAPH_RUNTIME_SEED"
SOURCE = "source"
"""The text of a kept file's metadata that identifies the files it was compiled of."""
SYMBOL = "-symbol.json"
Shapes = Mapping[str, Sequence[Union[int, str]]]


class _Source(NamedTuple):
    """A model that can be compiled: its file, further files, and what the command takes beside the first."""

    model: Path
    others: list[Path]
    arguments: list[str]

    @property
    def kept(self) -> Path:
        """Where its compiled file stands."""
        name = self.model.name
        stem = name[:-len(SYMBOL)] if name.endswith(SYMBOL) else self.model.stem
        return self.model.with_name(f"{stem}.ngraph")

    def digest(self) -> str:
        """Of the content of its files."""
        found = hashlib.blake2b(digest_size=16)
        for path in (self.model, *self.others):
            content = hashlib.blake2b()
            with path.open("rb") as file:
                for piece in iter(lambda: file.read(1 << 20), b""):
                    content.update(piece)
            found.update(content.digest())
        return found.hexdigest()


def load(path: str | os.PathLike[str], *, shapes: Shapes | None = None, batch: int = 1, rows: bool = True,
         compiler: str | None = None, threads: int | None = None) -> ServedModel:
    """The model of a folder or file, compiled at the first time.

    A folder holds `NAME-symbol.json` and `NAME-0000.params`, or one ONNX model, or one compiled file. The compiled
    file of a model is `NAME.ngraph` beside it. It is kept in the folder of NGRAPH_RUNTIME_CACHE, if that is set, or if
    nobody may write beside the model. It is compiled anew when the model's files have changed. A file that somebody
    compiled by hand is used as it is. A model that draws random numbers gets the seed of NGRAPH_RUNTIME_SEED, else one
    that no other worker has.

    Args:
        path: the folder, or one of these files.
        shapes: of the inputs, for compiling. Without them, those of `NAME-shapes.json`, `model-shapes.json` or
            `signature.json` in the folder. The first size of each is the number of rows, which `batch` replaces.
        batch: the largest number of rows of one call, for compiling.
        rows: False if the first axis holds no independent rows. Shapes are then taken as they are.
        compiler: the command that compiles, such as "/opt/py311/bin/ngraph-mxnet compile --precision bf16". Without
            it, that of NGRAPH_RUNTIME_COMPILER, else the package ngraph_mxnet of this Python, if there is one.
        threads: how many threads work on one call. Without it, OMP_NUM_THREADS, else as many as there are cores.

    Raises:
        ModelError: there is no such model, nothing compiles it, or its file can't be read; or NGRAPH_RUNTIME_SEED is no
            integer.
    """
    if threads is None:
        first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
        threads = int(first) if first.isdigit() else 0
    place = Path(path)
    source = None if place.suffix == ".ngraph" else _source(place, shapes, batch if rows else 0)
    model = _compiled(source, compiler, threads) if source else Model(_only_file(place), threads)
    text = os.environ.get(SEED)
    try:
        model.seed(int.from_bytes(os.urandom(8), "little") if text is None else int(text))
    except ValueError:
        raise ModelError(f"{SEED}: found {text!r}, expected an integer") from None
    return ServedModel(model, rows)


def _only_file(place: Path) -> Path:
    if not place.is_dir():
        return place
    found = sorted(place.glob("*.ngraph"))
    if len(found) != 1:
        raise ModelError(f"{place}: found {len(found)} compiled files, expected one *{SYMBOL} with its *.params, one "
                         "*.onnx or one *.ngraph")
    return found[0]


# ---- what is compiled ------------------------------------------------------------------------------------------


def _source(place: Path, shapes: Shapes | None, batch: int) -> _Source | None:
    """The model of a folder, or the one that a file is; None if the folder has none."""
    if place.is_dir():
        found = sorted([*place.glob(f"*{SYMBOL}"), *place.glob("*.onnx")])
        if len(found) > 1:
            raise ModelError(f"{place}: found {', '.join(one.name for one in found)}, expected one model: name its "
                             "file")
        if not found:
            return None
        (place,) = found
    if not place.is_file():
        raise ModelError(f"{place}: there is no such file or folder")
    others, arguments = [], []
    name = place.name[:-len(SYMBOL)]
    if place.name.endswith(SYMBOL):
        params = _latest_params(place.parent, name)
        others.append(params)
        arguments += ["--params", str(params), *_results(place)]
    file = next((place.with_name(one) for one in (f"{name}-shapes.json", "model-shapes.json", "signature.json",
                                                  "hyperparams.json") if place.with_name(one).is_file()), None)
    if shapes is None and file is not None:
        others.append(file)
    inputs = {one: (shape, "") for one, shape in shapes.items()} if shapes is not None else _read_shapes(file)
    for input_name, (shape, dtype) in inputs.items():
        arguments += ["--shape", f"{input_name}={','.join(map(str, _sizes(shape, batch)))}"]
        if dtype:
            arguments += ["--dtype", f"{input_name}={dtype}"]
    return _Source(place, others, arguments)


def _latest_params(folder: Path, name: str) -> Path:
    found = sorted(folder.glob(f"{name}-[0-9][0-9][0-9][0-9].params"))
    if not found:
        raise ModelError(f"{folder}: {name}{SYMBOL} has no weights: expected {name}-0000.params beside it")
    return found[-1]


def _results(symbol: Path) -> list[str]:
    """Of an SSD as its training leaves it, as that of SageMaker: its detections alone. Its other outputs
    need labels."""
    try:
        with symbol.open(encoding="utf-8") as file:
            names = {node["op"]: node["name"] for node in json.load(file)["nodes"]}
    except (ValueError, TypeError, KeyError):
        return []  # no symbol, as the compiler will tell
    is_training = "_contrib_MultiBoxTarget" in names and "_contrib_MultiBoxDetection" in names
    return ["--result", f"{names['_contrib_MultiBoxDetection']}_output"] if is_training else []


def _read_shapes(path: Path | None) -> dict[str, Any]:
    """Shape and dtype, "" if none is said, of each input: of SageMaker's file, of multi-model-server's signature, or of
    the parameters with which a built-in algorithm of SageMaker's was trained."""
    if path is None:
        return {}
    try:
        with path.open(encoding="utf-8") as file:
            content = json.load(file)
        if isinstance(content, dict) and "image_shape" in content:  # "3,224,224" or the size of a square of 3 channels
            sizes = [int(size) for size in str(content["image_shape"]).split(",")]
            return {"data": ([1, *(sizes if len(sizes) == 3 else [3, *sizes, *sizes])], "")}
        listed = content["inputs"] if isinstance(content, dict) else content
        found = {}
        for one in listed:
            shape = [int(size) or 1 for size in one["shape" if "shape" in one else "data_shape"]]
            found[str(one["name" if "name" in one else "data_name"])] = shape, str(one.get("dtype", ""))
        return found
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(f"{path}: found {error!r}, expected a list of inputs such as "
                         '[{"name": "data", "shape": [1, 3, 224, 224]}]') from error


def _sizes(shape: Sequence[int | str], batch: int) -> list[int | str]:
    """Sizes as the command takes them."""
    if not batch or not shape:
        return list(shape)
    return [1 if batch == 1 else f"1..{batch}", *shape[1:]]


# ---- compiling -------------------------------------------------------------------------------------------------


def _compiled(source: _Source, compiler: str | None, threads: int) -> Model:
    """The model of the kept file, which is made if there is none of these sources."""
    beside, digest = source.kept, source.digest()
    elsewhere = _cache() / f"{beside.stem}-{digest}.ngraph"
    found = _load(beside, digest, threads) or _load(elsewhere, digest, threads)
    if found is not None:
        return found
    kept = beside if not os.environ.get(CACHE) and os.access(beside.parent, os.W_OK) else elsewhere
    kept.parent.mkdir(parents=True, exist_ok=True)
    with _alone(kept.parent):
        found = _load(kept, digest, threads)  # another process may have been faster
        if found is None:
            _compile([*_command(source, compiler), "--meta", f"{SOURCE}={digest}", "-o", str(kept)], source)
            found = Model(kept, threads)
    return found


def _load(path: Path, digest: str, threads: int) -> Model | None:
    """The model of the file, or None if there is none or it was made of other sources."""
    if not path.is_file():
        return None
    model = Model(path, threads)
    return model if model.metadata.get(SOURCE, digest) == digest else None


def _cache() -> Path:
    return Path(os.environ.get(CACHE) or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache",
                                              "ngraph_runtime"))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only one process at a time compiles in this folder. Where the file system knows no locks, several do: each
    renames its own whole file into place."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _command(source: _Source, compiler: str | None) -> list[str]:
    chosen = compiler or os.environ.get(COMPILER)
    arguments = [str(source.model), *source.arguments]
    if chosen:
        return [*shlex.split(chosen), *arguments]
    if sys.version_info >= (3, 10) and importlib.util.find_spec("ngraph_mxnet") is not None:
        return [sys.executable, "-m", "ngraph_mxnet", "compile", *arguments]
    command = shutil.which("ngraph-mxnet")
    if command:
        return [command, "compile", *arguments]
    by_hand = " ".join(map(shlex.quote, ["ngraph-mxnet", "compile", *arguments, "-o", str(source.kept)]))
    raise ModelError(f"{source.model}: it is not compiled, and nothing here compiles it. Either set {COMPILER} to the "
                     "command of a Python that has the package, such as '/opt/compiler/bin/ngraph-mxnet compile', or "
                     f"run on any machine: {by_hand}")


def _compile(command: list[str], source: _Source) -> None:
    """Runs the command, which writes its file whole or not at all.

    The modules of this Python's environment are none for another Python.
    """
    environment = {name: value for name, value in os.environ.items()
                   if command[0] == sys.executable or name not in ("PYTHONPATH", "PYTHONHOME")}
    text = " ".join(map(shlex.quote, command))
    try:
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        raise ModelError(f"{source.model}: its compiler can't be started, see {COMPILER}: {error}: {text}") from error
    if done.returncode:
        output = done.stdout.decode("utf-8", "replace").strip()
        raise ModelError(f"{source.model}: compiling ended with status {done.returncode}: {text}\n{output}")
