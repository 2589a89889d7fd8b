"""One class for each framework: how it reads, compiles and runs a model. They live in a peer's own process.

The steps are timed apart: the constructor imports, `load` reads the file, `compile` makes it ready and `run` gives a
result that can be read. Inputs are in the framework's own form before `compile`, as an application holds them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Protocol

import numpy as np


class Unavailable(Exception):  # noqa: N818  # not an error: this machine can't run that peer
    """The peer can't run on this machine; the text says why."""


class Adapter(Protocol):
    """What a framework does for the worker."""

    def load(self, prefix: str, batch: int) -> None:
        """Read the model's file."""

    def native(self, inputs: np.ndarray) -> list[Any]:
        """The stacked inputs as the framework wants them."""

    def compile(self) -> None:
        """Make the loaded model ready to run."""

    def run(self, value: Any) -> Any:
        """One forward pass; its result can be read on return."""

    def array(self, output: Any) -> np.ndarray:
        """The result of `run` as a NumPy array."""

    def detail(self) -> str:
        """What a reader should know about how the model was taken; raises RuntimeError if it was not."""


def _require_precision() -> None:
    """Refuse to measure float32 under another name."""
    from ngraph_mxnet.program.backend import get_backend

    notices = get_backend("CPU").notices()
    if notices:
        raise Unavailable(notices[0])


#: By kind of peer, the name of the MXNet backend's own nodes in a bound graph.
MARKERS = {"none": None, "mkldnn": "_sg_mkldnn_", "ngraph": "NGraphSubgraphOp", "ngraph-int8": "NGraphSubgraphOp"}


class MXNet:
    """MXNet's symbol API; its backend comes from the environment."""

    def __init__(self, kind: str) -> None:
        if kind.startswith("ngraph"):
            import ngraph_mxnet  # noqa: F401

            if os.environ.get("NGRAPH_PRECISION"):
                _require_precision()
        else:
            # mxnet imports on current NumPy, without our package, whose memory others should not pay for.
            import ngraph_mxnet_autoload  # noqa: F401
        import mxnet

        self.mxnet = mxnet
        # It turns what oneDNN left in a layout of its own, such as a convolution's result, into rows that can be read.
        self.readable, self.address = mxnet.base._LIB.MXNDArrayGetData, ctypes.byref(ctypes.c_void_p())
        self.marker = MARKERS[kind]
        self.int8 = kind == "ngraph-int8"

    def load(self, prefix: str, batch: int) -> None:
        if self.int8:
            os.environ |= {"NGRAPH_PRECISION": "int8", "NGRAPH_CALIBRATION": f"{prefix}-b{batch}-recipe.json"}
            _require_precision()
        self.symbol, self.arguments, self.states = self.mxnet.model.load_checkpoint(prefix, 0)
        self.mxnet.nd.waitall()

    def native(self, inputs: np.ndarray) -> list[Any]:
        self.shape = inputs.shape[1:]
        values = [self.mxnet.nd.array(value) for value in inputs]
        self.mxnet.nd.waitall()
        return values

    def compile(self) -> None:
        self.executor = self.symbol.simple_bind(ctx=self.mxnet.cpu(), data=self.shape, grad_req="null")
        self.executor.copy_params_from(self.arguments, self.states)

    def run(self, value: Any) -> Any:
        output = self.executor.forward(is_train=False, data=value)[0]
        output.wait_to_read()
        self.readable(output.handle, self.address)
        return output

    def array(self, output: Any) -> np.ndarray:
        result: np.ndarray = output.asnumpy()
        return result

    def detail(self) -> str:
        plan = self.executor.debug_str()
        if self.marker is None:
            return f"{plan.count('Op:')} nodes"
        own = plan.count(f"Op:{self.marker}")
        if own == 0 and self.marker == MARKERS["ngraph"]:  # of a layer alone MXNet's own takes most not
            raise RuntimeError(f"no {self.marker} node in the bound graph: the backend took no part of it")
        return f"{own} of {plan.count('Op:')} nodes"


class OnnxRuntime:
    """ONNX Runtime's CPU provider with all graph optimisations."""

    def __init__(self, kind: str, threads: int) -> None:
        import onnxruntime

        self.suffix = kind.removeprefix("onnxruntime")  # -int8, -ours or -ours-int8

        self.onnxruntime = onnxruntime
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.inter_op_num_threads = 1
        self.options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        self.options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL

    def load(self, prefix: str, batch: int) -> None:
        self.path = f"{prefix}-b{batch}{self.suffix}.onnx"  # the session reads it itself: reading counts as compiling

    def native(self, inputs: np.ndarray) -> list[Any]:
        return list(inputs)

    def compile(self) -> None:
        self.session = self.onnxruntime.InferenceSession(
            self.path, self.options, providers=["CPUExecutionProvider"]
        )
        self.name = self.session.get_inputs()[0].name

    def run(self, value: Any) -> Any:
        return self.session.run(None, {self.name: value})[0]

    def array(self, output: Any) -> np.ndarray:
        return np.asarray(output)

    def detail(self) -> str:
        return ""


class NGraphOnnx:
    """This package without MXNet: `ngraph_mxnet.compile` of the ONNX file."""

    def __init__(self) -> None:
        import onnx  # noqa: F401  # as any first model would

        import ngraph_mxnet

        self.ngraph_mxnet = ngraph_mxnet
        if os.environ.get("NGRAPH_PRECISION"):
            _require_precision()

    def load(self, prefix: str, batch: int) -> None:
        self.path = f"{prefix}-b{batch}.onnx"  # reading counts as compiling, as for ONNX Runtime

    def native(self, inputs: np.ndarray) -> list[Any]:
        return list(inputs)

    def compile(self) -> None:
        self.executable = self.ngraph_mxnet.compile(self.path)

    def run(self, value: Any) -> Any:
        return self.executable(value)[0]

    def array(self, output: Any) -> np.ndarray:
        return np.asarray(output)

    def detail(self) -> str:
        return ""


class OpenVINO:
    """OpenVINO's CPU plug-in with the latency hint and one stream."""

    def __init__(self, kind: str, threads: int, cache: str | None) -> None:
        # Its import would start a process that reports to its makers, and takes CPU time from who is measured.
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
        import openvino

        self.core = openvino.Core()
        self.precision = "bf16" if kind == "openvino-bf16" else "f32"
        self.file = "-int8.xml" if kind == "openvino-int8" else ".onnx"
        if self.precision == "bf16" and "BF16" not in self.core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise Unavailable("the CPU has no bf16")
        if cache is not None:
            self.core.set_property({"CACHE_DIR": cache})
        self.settings = {
            "INFERENCE_NUM_THREADS": str(threads),
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_PRECISION_HINT": self.precision,
        }

    def load(self, prefix: str, batch: int) -> None:
        self.model = self.core.read_model(f"{prefix}-b{batch}{self.file}")

    def native(self, inputs: np.ndarray) -> list[Any]:
        return list(inputs)

    def compile(self) -> None:
        self.compiled = self.core.compile_model(self.model, "CPU", self.settings)
        self.request = self.compiled.create_infer_request()

    def run(self, value: Any) -> Any:
        return self.request.infer([value], share_inputs=True, share_outputs=True)[0]

    def array(self, output: Any) -> np.ndarray:
        return np.array(output)

    def detail(self) -> str:
        used = self.compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        if used != self.precision:
            raise RuntimeError(f"OpenVINO runs in {used}, not in {self.precision}")
        return ""


def make_adapter(kind: str, threads: int, cache: str | None) -> Adapter:
    """The adapter of a peer's kind; the import happens here.

    Raises:
        Unavailable: the CPU lacks what the peer needs.
    """
    if kind.startswith("onnxruntime"):
        return OnnxRuntime(kind, threads)
    if kind == "ngraph-onnx":
        return NGraphOnnx()
    if kind.startswith("openvino"):
        return OpenVINO(kind, threads, cache)
    return MXNet(kind)
