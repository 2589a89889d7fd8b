"""The names that the command line takes: peers, with environment variables of their own, and models."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peers import layers, nets
from peers.layers import layer_of
from peers.nets import net_of

#: Random weights magnify bf16's rounding: on networks of 50 layers OpenVINO is off by up to 1.3e-1, we by 8.7e-2.
BF16_TOLERANCE = 2e-1
#: The same, so that only what is broken is found: a net of 50 layers is off by 2e-1 to 4e-1 in everyone's 8 bits.
INT8_TOLERANCE = 6e-1
#: Peers: what is shown, the module that it needs, and the largest relative error that passes.
KINDS: dict[str, tuple[str, str, float]] = {
    "none": ("MXNet NONE", "mxnet", 1e-4),
    "mkldnn": ("MXNet MKLDNN", "mxnet", 1e-4),
    "onnxruntime": ("ONNX Runtime", "onnxruntime", 1e-4),
    "onnxruntime-ours": ("ONNX Runtime, to-onnx's file", "onnxruntime", 1e-4),
    "openvino": ("OpenVINO f32", "openvino", 1e-4),
    "openvino-bf16": ("OpenVINO bf16", "openvino", BF16_TOLERANCE),
    "ngraph": ("NGRAPH", "ngraph_mxnet", 1e-4),
    "ngraph-onnx": ("NGRAPH from ONNX", "ngraph_mxnet", 1e-4),
    "openvino-int8": ("OpenVINO int8", "openvino", INT8_TOLERANCE),
    "onnxruntime-int8": ("ONNX Runtime int8", "onnxruntime", INT8_TOLERANCE),
    "onnxruntime-ours-int8": ("ONNX Runtime, to-onnx's int8", "onnxruntime", INT8_TOLERANCE),
    "ngraph-int8": ("NGRAPH int8", "ngraph_mxnet", INT8_TOLERANCE),
    "none-module": ("MXNet NONE, Module", "mxnet", 1e-4),
    "mkldnn-module": ("MXNet MKLDNN, Module", "mxnet", 1e-4),
    "ngraph-module": ("NGRAPH, Module", "ngraph_mxnet", 1e-4),
    "tensorflow": ("TensorFlow", "tensorflow", 1e-4),
    "torch": ("torch.compile", "torch", 1e-4),
    "torch-bf16": ("torch.compile, autocast", "torch", BF16_TOLERANCE),
}
#: They infer, as `bench_peers.py` measures it; the others only train.
INFER = ("none", "mkldnn", "onnxruntime", "openvino", "openvino-bf16", "ngraph", "ngraph-onnx", "onnxruntime-ours")
INT8 = ("none", "onnxruntime", "openvino", "ngraph", "openvino-int8", "onnxruntime-int8", "ngraph-int8",
        "onnxruntime-ours-int8")
TRAIN = ("none", "mkldnn", "none-module", "mkldnn-module", "tensorflow", "torch", "torch-bf16", "ngraph",
         "ngraph-module")
OURS = ("ngraph", "ngraph-int8", "ngraph-onnx", "ngraph-module")
#: They read the ONNX file; the others read MXNet's own.
READS_ONNX = ("onnxruntime", "openvino", "openvino-bf16", "ngraph-onnx")
#: What is measured if nothing else is asked for: of models of the zoo, and of ONNX files.
DEFAULT_PEERS = tuple(kind for kind in INFER if kind not in ("ngraph-onnx", "onnxruntime-ours"))
DEFAULT_FILE_PEERS = ("onnxruntime", "openvino", "ngraph-onnx")
#: They read a layer's symbol, of which there is no ONNX file.
READS_SYMBOL = ("none", "mkldnn", "ngraph")

ZOO = (
    "alexnet",
    *(f"densenet{depth}" for depth in (121, 161, 169, 201)),
    "inceptionv3",
    *(f"mobilenet{width}" for width in ("0.25", "0.5", "0.75", "1.0")),
    *(f"mobilenetv2_{width}" for width in ("0.25", "0.5", "0.75", "1.0")),
    *(f"resnet{depth}_v{version}" for version in (1, 2) for depth in (18, 34, 50, 101, 152)),
    "squeezenet1.0",
    "squeezenet1.1",
    *(f"vgg{depth}{suffix}" for suffix in ("", "_bn") for depth in (11, 13, 16, 19)),
)
#: Names that stand for several models.
GROUPS = {"zoo": list(ZOO), "nets": [nets.PREFIX + name for name in nets.NETS],
          "layers": [layers.PREFIX + name for name in layers.LAYERS]}
#: The most tokens of a sequence that BERT takes.
BERT_LENGTH = 512


class SpecError(ValueError):
    """A name that is not known, or a text that can't be read."""


@dataclass(frozen=True)
class PeerSpec:
    """One peer: its kind and the environment variables set for its process only."""

    kind: str
    variables: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        settings = ",".join(f"{name}={value}" for name, value in self.variables.items())
        return f"{self.kind}[{settings}]" if settings else self.kind

    @property
    def label(self) -> str:
        """For tables: NGRAPH, or NGRAPH and its settings."""
        settings = " ".join(
            f"{name.removeprefix('NGRAPH_')}={value}" for name, value in self.variables.items()
        )
        return f"{KINDS[self.kind][0]} {settings}".rstrip()

    @property
    def module(self) -> str:
        """The module that must be importable."""
        return KINDS[self.kind][1]

    @property
    def tolerance(self) -> float:
        """The largest difference from the reference, relative to its largest value."""
        if self.variables.get("NGRAPH_PRECISION", "").lower() in ("bf16", "auto"):
            return BF16_TOLERANCE
        return KINDS[self.kind][2]

    def environment(self, threads: int, cache: str) -> dict[str, str]:
        """The environment of the peer's process: this one's, less what would reach some peers only."""
        from ngraph_mxnet.base.installation import without_settings  # not in peers, which read this module, too

        own = {"OMP_NUM_THREADS": str(threads), "NGRAPH_CACHE_DIR": cache, "MXNET_SUBGRAPH_VERBOSE": "0"}
        if self.module != "ngraph_mxnet":
            own["MXNET_SUBGRAPH_BACKEND"] = "MKLDNN" if self.kind.startswith("mkldnn") else "NONE"
        else:
            own["MXNET_SUBGRAPH_BACKEND"] = "NGRAPH"
        return {**without_settings(os.environ), **own, **self.variables}


def parse_peer(text: str, kinds: Sequence[str] = INFER) -> PeerSpec:
    """Read `KIND` or `KIND[VAR=VALUE,...]`, of these kinds.

    Raises:
        SpecError: the kind is not known or a setting is not VAR=VALUE.
    """
    match = re.fullmatch(r"([^\[\]]+)(?:\[([^\[\]]*)\])?", text.strip())
    kind = match.group(1).strip().lower() if match else text
    if match is None or kind not in kinds:
        raise SpecError(f"found peer {text!r}, expected one of {', '.join(kinds)}, or such as ngraph[VAR=VALUE]")
    variables = {}
    for setting in filter(None, (part.strip() for part in (match.group(2) or "").split(","))):
        name, separator, value = setting.partition("=")
        if not separator or not re.fullmatch(r"\w+", name):
            raise SpecError(f"found {setting!r} in peer {text!r}, expected VAR=VALUE")
        variables[name] = value
    return PeerSpec(kind, variables)


def parse_peers(text: str, kinds: Sequence[str] = INFER) -> list[PeerSpec]:
    """Read a comma-separated list of peers of these kinds; commas within brackets belong to a peer.

    Raises:
        SpecError: one can't be read, or one stands there twice.
    """
    peers = [parse_peer(part, kinds) for part in re.split(r",(?![^\[\]]*\])", text) if part.strip()]
    names = [str(peer) for peer in peers]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise SpecError(f"found peer {repeated[0]!r} twice, expected each once")
    if not peers:
        raise SpecError("found no peer, expected at least one")
    return peers


def parse_models(text: str) -> list[str]:
    """Read a comma-separated list of models, and of `GROUPS`.

    Raises:
        SpecError: there is no model of that name.
    """
    models: list[str] = []
    known = {*ZOO, *GROUPS["nets"], *GROUPS["layers"]}
    for name in filter(None, (part.strip() for part in text.split(","))):
        file = onnx_file(name)
        if file is not None and not file[0].is_file():
            raise SpecError(f"found model {name!r}, but there is no file {file[0]}")
        if file is not None:  # absolute: peers' processes start in another folder
            name = f"{file[0].resolve()}[{'x'.join(map(str, file[1]))}]"
        elif name not in known and name not in GROUPS and bert_length(name) is None:
            raise SpecError(f"found model {name!r}, expected {', '.join(GROUPS)}, bert12_LENGTH (up to {BERT_LENGTH} "
                            f"tokens), a file as FILE.onnx[3x224x224], or any of {', '.join(sorted(known))}")
        models.extend(GROUPS.get(name, [name]))
    return list(dict.fromkeys(models))


def parse_numbers(text: str) -> list[int]:
    """Read a comma-separated list of positive integers.

    Raises:
        SpecError: one is not a positive integer.
    """
    return _integers(text, 1, "positive integers")


def parse_counts(text: str) -> list[int]:
    """The same, 0 allowed.

    Raises:
        SpecError: one is neither 0 nor a positive integer.
    """
    return _integers(text, 0, "integers from 0 on")


def _integers(text: str, least: int, expected: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= least for part in parts):
        raise SpecError(f"found {text!r}, expected {expected} with commas between them")
    return [int(part) for part in parts]


def bert_length(model: str) -> int | None:
    """The tokens of a sequence, if that is the name of a BERT."""
    match = re.fullmatch(r"bert12_([1-9]\d*)", model)
    return int(match.group(1)) if match and int(match.group(1)) <= BERT_LENGTH else None


def onnx_file(model: str) -> tuple[Path, tuple[int, ...]] | None:
    """The file and its input's shape without the batch, if it is named as FILE.onnx[3x224x224]."""
    match = re.fullmatch(r"(.+\.onnx)\[([1-9]\d*(?:x[1-9]\d*)*)\]", model)
    return (Path(match.group(1)), tuple(map(int, match.group(2).split("x")))) if match else None


def is_onnx(model: str) -> bool:
    """Whether there is an ONNX file of it alone, which only `READS_ONNX` read."""
    return onnx_file(model) is not None or net_of(model) is not None


def readers(models: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The kinds of peers that can read all the models, and those that do where nothing else is asked for."""
    symbols, files = any(layer_of(model) is not None for model in models), any(map(is_onnx, models))
    if symbols:
        return ((), ()) if files else (READS_SYMBOL, READS_SYMBOL)
    return (READS_ONNX, DEFAULT_FILE_PEERS) if files else (INFER, DEFAULT_PEERS)


def file_prefix(model: str) -> str:
    """What the exported files' names begin with; tables show it too."""
    file = onnx_file(model)
    if file is None:
        return model.removeprefix(nets.PREFIX).removeprefix(layers.PREFIX)
    return f"{file[0].stem}-{'x'.join(map(str, file[1]))}"


def input_shape(model: str, batch: int) -> tuple[int, ...]:
    """(batch, 3, height, width) in pixels, as the network was designed for, (batch, tokens), or what was asked for."""
    file, net = onnx_file(model), net_of(model) or layer_of(model)
    if file is not None:
        return batch, *file[1]
    if net is not None:
        return batch, *net.shape
    length = bert_length(model)
    if length is not None:
        return batch, length
    size = 299 if model.startswith("inception") else 224
    return batch, 3, size, size
