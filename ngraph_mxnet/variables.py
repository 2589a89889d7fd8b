"""The environment variables that this package reads: name, kind, default, allowed values, a line of help."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngraph_mxnet import registry, setting_texts
from ngraph_mxnet.errors import ConfigError


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
        "The backend that compiles when the caller names none. NNP is a simulated accelerator, of a product and power "
        "mode if wanted: NNP:nnp-i-1100:10W. HYBRID, or HYBRID:nnp-i-1100:10W, places nodes on CPU and NNP; "
        "HYBRID:cpu,nnp,name on these. Other distributions may bring more.",
        _backend,
    ),
    _choice(
        "NGRAPH_CPU_ISA",
        "auto",
        ("auto", "avx512", "avx_vnni", "avx2", "baseline"),
        "The instruction set of the CPU kernels; auto takes the best that the machine has. avx_vnni is avx2 with the "
        "products of bytes of AVX-VNNI.",
        str.lower,
        compiles=True,
    ),
    _switch(
        "NGRAPH_CPU_WINOGRAD",
        "1: 3x3 convolutions by Winograd's algorithm where that is faster; 0: all by the direct sum.",
        default=True,
    ),
    Variable(
        "OMP_NUM_THREADS",
        "integer",
        None,
        "a positive integer, or a list of them",
        "Threads that run one graph. Wins over NGRAPH_INTRA_OP_PARALLELISM.",
        setting_texts.team,
    ),
    Variable(
        "NGRAPH_INTRA_OP_PARALLELISM",
        "integer",
        None,
        "a positive integer",
        "Threads that run one graph; unset: the physical cores that affinity and CPU quota leave to this process.",
        setting_texts.positive,
    ),
    Variable(
        "NGRAPH_WAIT_US",
        "integer",
        None,
        "0 or a positive integer",
        "Microseconds for which threads stay awake between calls; unset: 200, or 0 while calls mostly come later than "
        "that. Wins over OMP_WAIT_POLICY. Read once, when the library is loaded.",
        setting_texts.natural,
    ),
    _switch(
        "NGRAPH_SHARE_CORES",
        "0: calls take their threads whatever other processes do; 1: a user's processes that compute on the same cores "
        "share them, by a file in /dev/shm. Read by the first call.",
        default=True,
        compiles=False,
    ),
    Variable(
        "NGRAPH_INTER_OP_PARALLELISM",
        "integer",
        0,
        "0 or a positive integer",
        "Nodes of independent branches that run at once, all on the same threads; 0: no limit, 1: one after the other.",
        setting_texts.natural,
        compiles=True,
    ),
    Variable(
        "NGRAPH_DISTURB",
        "words",
        setting_texts.UNDISTURBED,
        "off, poison, shuffle:SEED, or both with a comma",
        "For tests of this package. poison: memory of values is filled with NaN before and behind its use; shuffle: "
        "kernels run in an order drawn by the seed of all that is allowed. Results stay the same.",
        setting_texts.disturbance,
        compiles=True,
    ),
    _switch(
        "NGRAPH_CHECK_LOCKS",
        "For tests of this package. 1: a thread that takes its locks out of order ends the process, with a message.",
        default=False,
        compiles=False,
    ),
    Variable(
        "NGRAPH_PROFILE",
        "path",
        None,
        "the path of a file, in a folder that exists",
        "Write a Chrome trace of compiling and running to this file at exit; %p is the process's number.",
        str,
    ),
    _choice(
        "NGRAPH_PRECISION",
        "f32",
        ("f32", "bf16", "f16", "int8"),
        "bf16: convolutions and matrix products in bf16 with float32 sums, on CPUs with AVX512_BF16 (others: float32). "
        "int8: the layers of the recipe in NGRAPH_CALIBRATION in 8 bits (without it: float32), on the simulated NNP-I "
        "all. "
        "f16: that of the NNP-I; the CPU then computes in float32.",
        str.lower,
        compiles=True,
    ),
    Variable(
        "NGRAPH_CALIBRATION",
        "path",
        None,
        "a file that can be read",
        "For NGRAPH_PRECISION=int8: the recipe that `ngraph_mxnet quantize --recipe` wrote (docs/quantisation.md). Its "
        "layers are found by what they are and where they stand; one warning says what it does not fit.",
        FileSetting.of,
        compiles=True,
    ),
    _switch(
        "NGRAPH_INT8",
        "1: MXNet's quantised operators are compiled; 0: they stay with MXNet.",
        default=True,
    ),
    _switch(
        "NGRAPH_TRAINING",
        "1: executors and hybridized blocks train compiled, too, as a whole or in parts around what is not supported "
        "(docs/training.md), and optimizers update all parameters by one compiled program; 0: MXNet trains.",
        default=True,
        compiles=False,
    ),
    Variable(
        "NGRAPH_REMATERIALIZE",
        "number",
        0.0,
        "from 0 to 1",
        "How much of what a compiled training step saves from forward to backward is computed again instead: at 0 what "
        "takes no time, at 1 all but checkpoints, which takes another forward. Above 0 results may round otherwise.",
        setting_texts.share,
    ),
    _switch(
        "NGRAPH_DIRECT",
        "0: MXNet runs every graph as an operator; 1: a graph that is ours as a whole runs past it, at once if nothing "
        "has to be awaited.",
        default=True,
        compiles=False,
    ),
    _switch(
        "NGRAPH_NNP_REPORT",
        "1: at exit, what the calls of each graph compiled for the NNP would have taken: simulated time, energy, "
        "utilisation.",
        compiles=False,
    ),
    _switch("NGRAPH_CODEGEN", "1: kernels generated for the graph's own shapes, with elementwise chains fused."),
    _switch("NGRAPH_AUTOTUNE", "1: compiling measures how to cut convolutions and matrix products on this machine."),
    Variable(
        "NGRAPH_DYNAMIC",
        "word or axes",
        "auto",
        "auto, off, or axes of inputs, as data:0,2,3;mask:0",
        "auto: what comes with a second set of shapes is compiled for a range of sizes (docs/shapes.md); off: for each "
        "set of shapes; axes of inputs: for any sizes of these from the first call on.",
        setting_texts.dynamic,
    ),
    Variable(
        "NGRAPH_SHAPES",
        "integer",
        16,
        "a positive integer",
        "Shapes for which a region stays compiled in memory; of more, the one used longest ago goes.",
        setting_texts.positive,
    ),
    Variable(
        "NGRAPH_CACHE_DIR",
        "path",
        None,
        "a folder, or off",
        "Where compiled models, code and measurements are kept; unset: ngraph_mxnet in XDG_CACHE_HOME or ~/.cache.",
        str,
    ),
    Variable(
        "NGRAPH_CACHE_MB",
        "integer",
        256,
        "a positive integer",
        "Size of that folder in MiB, beyond which what was used longest ago goes.",
        setting_texts.positive,
    ),
    _switch(
        "NGRAPH_CACHE_WEIGHTS",
        "1: prepared weights are kept in that folder, too: processes start sooner. "
        "They are up to twice as big as the model's: choose NGRAPH_CACHE_MB accordingly.",
        compiles=False,
    ),
    Variable(
        "NGRAPH_PACKAGE",
        "path",
        None,
        "files of `ngraph_mxnet compile`, with : between",
        "A graph of MXNet's that one of these was made of, with the same weights, starts from it. Read at the first "
        "bind.",
        str,
    ),
    Variable(
        "NGRAPH_AUDIT",
        "path",
        None,
        "a folder, which is made if there is none",
        "Record statistics and hashes of what compiled graphs read and give, in this folder (docs/audit.md).",
        str,
    ),
    Variable(
        "NGRAPH_AUDIT_CALLS",
        "word",
        setting_texts.ALL_CALLS,
        "all, first:N, every:N",
        "Which calls of each graph NGRAPH_AUDIT records.",
        setting_texts.audited_calls,
    ),
    _choice(
        "NGRAPH_AUDIT_TENSORS",
        "borders",
        ("borders", "all"),
        "borders: inputs, weights and results of each graph; all: each value within, too, which takes many times as "
        "long.",
        str.lower,
    ),
    Variable(
        "NGRAPH_AUDIT_GUARD",
        "range",
        None,
        "nan, or LOW:HIGH, as -1e4:1e4",
        "An error, with the node's name, where a compiled graph gives NaN or infinite numbers, or such as are out of "
        "this range; -inf:inf: NaN alone.",
        setting_texts.bounds,
    ),
    Variable(
        "NGRAPH_RUNS",
        "path",
        None,
        "a file",
        "The store of runs: where it is set, `bench`, `quantize` and the scripts that measure record there "
        "(docs/experiments.md).",
        str,
    ),
    _switch(
        "NGRAPH_KVSTORE",
        "1: the kvstores dist_sync and dist_device_sync of a script are dist_sync_ngraph, over MPI "
        "(docs/distributed.md).",
        compiles=False,
    ),
    Variable(
        "NGRAPH_KVSTORE_BUCKET",
        "integer",
        None,
        "a positive integer",
        "MB of gradients that dist_sync_ngraph sums at once; unset: a sixteenth of all, but 4 to 25 MB.",
        setting_texts.positive,
    ),
    _switch(
        "NGRAPH_KVSTORE_OVERLAP",
        "1: gradients are sent while the backward pass goes on; 0: behind it.",
        default=True,
        compiles=False,
    ),
    _switch(
        "NGRAPH_KVSTORE_SHARED_MEMORY",
        "1: processes of one host sum gradients in memory that they share; 0: they talk through MPI, as hosts do.",
        default=True,
        compiles=False,
    ),
    _choice(
        "NGRAPH_KVSTORE_WIRE",
        "f32",
        ("f32", "bf16"),
        "What gradients are between hosts; bf16 is half of the traffic, with sums in float32.",
        str.lower,
    ),
    Variable(
        "NGRAPH_KVSTORE_TIMEOUT",
        "number",
        4.0,
        "seconds, 1 or more",
        "How long a rank of a distributed job may be silent before the others fail (docs/distributed.md).",
        setting_texts.silence,
    ),
    _choice(
        "NGRAPH_LOG_LEVEL",
        "warning",
        ("debug", "info", "warning", "error"),
        "The least severe log messages that are shown.",
        str.lower,
    ),
)
