"""The environment variables that this package reads: name, kind, default, allowed values, a line of help."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import ConfigError


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError(text)
    return value


def silence(text: str) -> float:
    """Seconds of which a few heartbeats fit into each."""
    value = float(text)
    if not 1 <= value < math.inf:
        raise ValueError(text)
    return value


def team(text: str) -> int:
    """OpenMP's list of nested team sizes, such as `4,2`: the outermost counts."""
    sizes = [positive(part) for part in text.split(",")]
    return sizes[0]


def axes_by_input(text: str) -> dict[str, tuple[int, ...]]:
    """Parse a text such as `data:0,2,3;mask:0`: the axes of each input, by name. Raises ValueError."""
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(";"):
        name, separator, axes = part.strip().rpartition(":")
        if not separator or not name or name in found:
            raise ValueError(text)
        found[name] = tuple(natural(axis) for axis in axes.split(","))
    return found


def dynamic(text: str) -> str | dict[str, tuple[int, ...]]:
    return text.lower() if text.lower() in ("auto", "off") else axes_by_input(text)


class Disturbance(NamedTuple):
    """A disturbance of compiled programs, for tests."""

    poison: bool = False
    seed: int | None = None
    """The seed by which the order of instructions is drawn."""

    def __str__(self) -> str:
        return ",".join(["poison"] * self.poison + [f"shuffle:{self.seed}"] * (self.seed is not None)) or "off"


UNDISTURBED = Disturbance()


def disturbance(text: str) -> Disturbance:
    """Parse `off`, `poison`, `shuffle:SEED`, or the last two with a comma between. Raises ValueError."""
    found = UNDISTURBED
    for part in text.lower().split(",") if text.lower() != "off" else ():
        kind, _, seed = part.partition(":")
        if kind == "shuffle" and found.seed is None:
            found = found._replace(seed=positive(seed))
        elif part == "poison" and not found.poison:
            found = found._replace(poison=True)
        else:
            raise ValueError(text)
    return found


class Calls(NamedTuple):
    """Which calls of a graph are meant: the first so many, and every so many, if that is not 0."""

    first: int
    every: int

    def has(self, number: int) -> bool:
        """True if the call of this number, from 0 on, is one of those meant."""
        return number < self.first or (self.every > 0 and number % self.every == 0)

    def __str__(self) -> str:
        return f"first:{self.first}" if self.first else "all" if self.every == 1 else f"every:{self.every}"


ALL_CALLS = Calls(0, 1)


def audited_calls(text: str) -> Calls:
    """Parse `all`, `first:N` or `every:N`."""
    kind, separator, count = text.lower().partition(":")
    if kind == "all" and not separator:
        return ALL_CALLS
    if kind not in ("first", "every"):
        raise ValueError(text)
    return Calls(positive(count), 0) if kind == "first" else Calls(0, positive(count))


class Bounds(NamedTuple):
    """The finite numbers from `low` to `high`, and infinite ones if `infinite`; NaN is out of all bounds."""

    low: float
    high: float
    infinite: bool

    def __str__(self) -> str:
        return "nan" if self == _FINITE else f"{self.low:g}:{self.high:g}"


_FINITE = Bounds(-math.inf, math.inf, False)


def bounds(text: str) -> Bounds:
    """Parse `nan` or `LOW:HIGH`."""
    if text.lower() == "nan":
        return _FINITE
    low, separator, high = text.partition(":")
    found = Bounds(float(low), float(high), float(low) == -math.inf and float(high) == math.inf)
    if not separator or not found.low <= found.high:  # NaN is in no order
        raise ValueError(text)
    return found


@dataclass(frozen=True)
class FileSetting:
    """A file, and the digest of its content, on which what is compiled depends."""

    path: str
    digest: str

    @staticmethod
    def of(path: str) -> FileSetting:
        """Raises ValueError where it can't be read."""
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ValueError(str(error)) from None
        return FileSetting(path, hashlib.blake2b(content, digest_size=16).hexdigest())


@dataclass(frozen=True)
class Variable:
    """One variable. `parse` turns its text into the value and raises ValueError; `allowed` is for people.

    `compiles`: what is compiled depends on it.
    """

    name: str
    kind: str
    default: Any
    allowed: str
    help: str
    parse: Callable[[str], Any]
    compiles: bool = False

    def checked(self) -> Any:
        """The value; the default when the variable is unset or blank.

        Raises:
            ConfigError: the text is not allowed.
        """
        text = os.environ.get(self.name, "").strip()
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError:
            raise ConfigError(f"{self.name}={text!r} is not allowed: expected {self.allowed}") from None


def _choice(
    name: str, default: str, choices: tuple[str, ...], help: str, normal: Callable[[str], str], compiles: bool = False
) -> Variable:
    def parse(text: str) -> str:
        if normal(text) not in choices:
            raise ValueError(text)
        return normal(text)

    return Variable(name, "word", default, ", ".join(choices), help, parse, compiles)


def _switch(name: str, help: str, *, default: bool = False, compiles: bool = True) -> Variable:
    """A variable that is 0 or 1. `compiles`: what is compiled depends on it."""
    words = {"0": False, "1": True}

    def parse(text: str) -> bool:
        if text not in words:
            raise ValueError(text)
        return words[text]

    return Variable(name, "0 or 1", default, "0, 1", help, parse, compiles)


def _backend(text: str) -> str:
    name, _, variant = text.partition(":")
    if registry.find(name.upper(), variant) is None:
        raise ValueError(text)
    return f"{name.upper()}:{variant.lower()}" if variant else name.upper()


TABLE = (
    Variable(
        "NGRAPH_BACKEND",
        "word",
        "CPU",
        ", ".join(registry.TARGETS),
        "The backend that compiles when the caller names none. NNP is a simulated accelerator; NNP:nnp-i-1100:10W "
        "chooses a product and a power mode. HYBRID places nodes on the CPU and the NNP. HYBRID:nnp-i-1100:10W names "
        "the NNP, HYBRID:cpu,nnp,name all devices. Other distributions may add backends.",
        _backend,
    ),
    _choice(
        "NGRAPH_CPU_ISA",
        "auto",
        ("auto", "amx", "avx512", "avx_vnni", "avx2", "baseline"),
        "The instruction set of the CPU kernels. auto takes the best that the machine has. amx is avx512 with Intel's "
        "tiles for products of bf16 and of bytes, avx_vnni is avx2 with AVX-VNNI's products of bytes.",
        str.lower,
        compiles=True,
    ),
    _switch("NGRAPH_CPU_WINOGRAD",
            "1: 3x3 convolutions use Winograd's algorithm where it is faster. 0: all convolutions use the direct sum.",
            default=True),
    Variable(
        "OMP_NUM_THREADS",
        "integer",
        None,
        "a positive integer, or a list of them",
        "Number of threads that run one graph. The first number of a list counts. It takes precedence over "
        "NGRAPH_INTRA_OP_PARALLELISM.",
        team,
    ),
    Variable(
        "NGRAPH_INTRA_OP_PARALLELISM",
        "integer",
        None,
        "a positive integer",
        "Number of threads that run one graph. Unset: the physical cores that affinity and CPU quota leave to this "
        "process.",
        positive,
    ),
    Variable(
        "NGRAPH_WAIT_US",
        "integer",
        None,
        "0 or a positive integer",
        "Microseconds for which threads stay awake between calls. Unset: 200, or 0 while three of four calls come "
        "later than that. It takes precedence over OMP_WAIT_POLICY. The library reads it once, when it is loaded.",
        natural,
    ),
    _switch(
        "NGRAPH_SHARE_CORES",
        "1: a user's processes that compute on the same cores share them, through a file in /dev/shm. 0: a call takes "
        "its threads whatever other processes do. The first call reads it.",
        default=True,
        compiles=False,
    ),
    Variable(
        "NGRAPH_INTER_OP_PARALLELISM",
        "integer",
        0,
        "0 or a positive integer",
        "Number of nodes of independent branches that run at once, all on the same threads. 1: one node after the "
        "other. 0: no limit, but 1 where the program has one thread.",
        natural,
        compiles=True,
    ),
    Variable(
        "NGRAPH_DISTURB",
        "words",
        UNDISTURBED,
        "off, poison, shuffle:SEED, or both with a comma",
        "For tests of this package; results stay the same. poison fills the memory of values with NaN before and "
        "after their use. shuffle runs kernels in a random allowed order, drawn from the seed.",
        disturbance,
        compiles=True,
    ),
    _switch(
        "NGRAPH_CHECK_LOCKS",
        "For tests of this package. 1: a thread that takes the package's locks out of order ends the process, with a "
        "message.",
        default=False,
        compiles=False,
    ),
    Variable(
        "NGRAPH_PROFILE",
        "path",
        None,
        "the path of a file, in a folder that exists",
        "Write a Chrome trace of compiling and running to this file at exit. %p in the file's name stands for the "
        "process number.",
        str,
    ),
    _choice(
        "NGRAPH_PRECISION",
        "f32",
        ("f32", "auto", "bf16", "f16", "int8"),
        "bf16: convolutions, matrix products, attention and recurrent steps multiply bf16 and sum in float32, on CPUs "
        "with AVX512_BF16; other CPUs compute in float32. int8: the CPU computes the layers of the recipe in "
        "NGRAPH_CALIBRATION in 8 bits, and everything in float32 without a recipe; the simulated NNP-I computes all "
        "products in 8 bits. f16: the precision of the NNP-I; the CPU computes in float32. auto: bf16 on CPUs that "
        "multiply it at their full rate (AMX, and AMD's AVX512_BF16), which one warning tells; else f32.",
        str.lower,
        compiles=True,
    ),
    Variable(
        "NGRAPH_CALIBRATION",
        "path",
        None,
        "a file that can be read",
        "The recipe for NGRAPH_PRECISION=int8, which `ngraph_mxnet quantize --recipe` writes (docs/quantisation.md). "
        "Layers are matched by kind and position in the graph. One warning names the layers that do not match.",
        FileSetting.of,
        compiles=True,
    ),
    _switch("NGRAPH_INT8", "1: the package compiles MXNet's quantised operators. 0: they stay with MXNet.",
            default=True),
    _switch(
        "NGRAPH_TRAINING",
        "1: executors and hybridized blocks train compiled, as a whole or in parts around unsupported operators "
        "(docs/training.md), and one compiled program updates all parameters. 0: MXNet trains.",
        default=True,
        compiles=False,
    ),
    Variable(
        "NGRAPH_REMATERIALIZE",
        "number",
        0.0,
        "from 0 to 1",
        "The share of the bytes saved from forward to backward that a compiled training step computes again instead. "
        "0: only values whose recomputation costs no time. 1: all but checkpoints, which costs about another forward "
        "pass. Above 0, results may round differently.",
        share,
    ),
    _switch(
        "NGRAPH_DIRECT",
        "1: a graph that the package compiles as a whole bypasses MXNet's operator, and runs at once if it has "
        "nothing to wait for. 0: MXNet runs every graph as an operator.",
        default=True,
        compiles=False,
    ),
    _switch(
        "NGRAPH_NNP_REPORT",
        "1: print at exit, for each graph compiled for the NNP, the simulated time, energy and utilisation of its "
        "calls.",
        compiles=False,
    ),
    _switch(
        "NGRAPH_CODEGEN",
        "1: generate kernels for the graph's own shapes, which fuse chains of elementwise operators, reductions, "
        "softmax and layer norms.",
    ),
    _switch("NGRAPH_AUTOTUNE", "1: compiling measures on this machine how to divide convolutions and matrix products."),
    Variable(
        "NGRAPH_DYNAMIC",
        "word or axes",
        "auto",
        "auto, off, or axes of inputs, as data:0,2,3;mask:0",
        "auto: a graph that gets a second set of shapes is compiled for a range of sizes (docs/shapes.md). off: each "
        "set of shapes is compiled. Axes of inputs: these axes take any size from the first call on.",
        dynamic,
    ),
    Variable(
        "NGRAPH_SHAPES",
        "integer",
        16,
        "a positive integer",
        "Number of sets of shapes for which a region stays compiled in memory. Beyond it, the least recently used one "
        "goes.",
        positive,
    ),
    Variable(
        "NGRAPH_CACHE_DIR",
        "path",
        None,
        "a folder, or off",
        "The folder that keeps compiled models, code and measurements. off: nothing is kept on disk. Unset: "
        "ngraph_mxnet in XDG_CACHE_HOME or ~/.cache.",
        str,
    ),
    Variable("NGRAPH_CACHE_MB", "integer", 256, "a positive integer",
             "Largest size of that folder in MiB. Beyond it, the least recently used entries go.", positive),
    _switch(
        "NGRAPH_CACHE_WEIGHTS",
        "1: the folder also keeps prepared weights of 8 MiB or more, so that processes start sooner. They may take "
        "twice the size of the model's weights, so choose NGRAPH_CACHE_MB accordingly.",
        compiles=False,
    ),
    Variable(
        "NGRAPH_PACKAGE",
        "path",
        None,
        "files of `ngraph_mxnet compile`, with : between",
        "Compiled files. An MXNet graph from which one of them was made, with the same weights, starts from that "
        "file. The first bind reads the variable.",
        str,
    ),
    Variable(
        "NGRAPH_AUDIT",
        "path",
        None,
        "a folder, which is made if there is none",
        "Record statistics and hashes of the inputs, weights and results of compiled graphs in this folder "
        "(docs/audit.md).",
        str,
    ),
    Variable("NGRAPH_AUDIT_CALLS", "word", ALL_CALLS, "all, first:N, every:N",
             "The calls of each graph that NGRAPH_AUDIT records.", audited_calls),
    _choice(
        "NGRAPH_AUDIT_TENSORS",
        "borders",
        ("borders", "all"),
        "borders: record the inputs, weights and results of each graph. all: record each value inside it too, which "
        "takes many times as long.",
        str.lower,
    ),
    Variable(
        "NGRAPH_AUDIT_GUARD",
        "range",
        None,
        "nan, or LOW:HIGH, as -1e4:1e4",
        "Raise an error that names the node if a compiled graph gives NaN, infinite numbers, or numbers outside this "
        "range. nan: no range. -inf:inf: only NaN is an error.",
        bounds,
    ),
    Variable(
        "NGRAPH_RUNS",
        "path",
        None,
        "a file",
        "The file of the store of runs. If it is set, `bench`, `quantize` and the scripts that measure record each "
        "run there (docs/experiments.md).",
        str,
    ),
    _switch(
        "NGRAPH_KVSTORE",
        "1: dist_sync, dist_device_sync and dist_sync_device in a script mean dist_sync_ngraph, which uses MPI "
        "(docs/distributed.md).",
        compiles=False,
    ),
    Variable(
        "NGRAPH_KVSTORE_BUCKET",
        "integer",
        None,
        "a positive integer",
        "MiB of gradients that dist_sync_ngraph sums at once, but at least a 24th of all gradients. Unset: a "
        "sixteenth of all gradients, but 4 to 25 MiB.",
        positive,
    ),
    _switch(
        "NGRAPH_KVSTORE_OVERLAP",
        "1: dist_sync_ngraph sends gradients while the backward pass runs. 0: it sends them after the backward pass.",
        default=True, compiles=False,
    ),
    _switch(
        "NGRAPH_KVSTORE_SHARED_MEMORY",
        "1: processes of one host sum gradients in shared memory. 0: they exchange gradients through MPI, as hosts "
        "do.",
        default=True,
        compiles=False,
    ),
    _choice("NGRAPH_KVSTORE_WIRE", "f32", ("f32", "bf16"),
            "The element type of gradients between hosts. bf16 halves the traffic; sums stay in float32.", str.lower),
    Variable(
        "NGRAPH_KVSTORE_TIMEOUT",
        "number",
        4.0,
        "seconds, 1 or more",
        "Seconds for which a rank of a distributed job may be silent before the other ranks fail "
        "(docs/distributed.md).",
        silence,
    ),
    _choice("NGRAPH_LOG_LEVEL", "warning", ("debug", "info", "warning", "error"),
            "The least severe level of log messages that are shown.", str.lower),
)
