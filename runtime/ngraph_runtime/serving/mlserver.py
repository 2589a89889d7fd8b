"""The runtime of MLServer, which speaks the Open Inference Protocol over HTTP and gRPC: docs/serving.md.

A model's `model-settings.json` names it: `"implementation": "ngraph_runtime.serving.mlserver.NGraphRuntime"`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]
from mlserver.errors import InferenceError  # type: ignore[import-not-found]
from mlserver.types import (  # type: ignore[import-not-found]
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    ResponseOutput,
)
from mlserver.utils import get_model_uri  # type: ignore[import-not-found]

from ngraph_runtime.errors import InputError, ModelError
from ngraph_runtime.pool import shared_pool
from ngraph_runtime.ports import Port
from ngraph_runtime.serving.loading import load
from ngraph_runtime.serving.served import ServedModel

_OPTIONS = ("batch", "compiler", "rows", "shapes", "threads")
_KINDS = {"b": "BOOL", "f": "FP", "i": "INT", "u": "UINT"}


class NGraphRuntime(MLModel):
    """A compiled model, or one that is compiled when it is loaded for the first time.

    `parameters.uri` is the file or folder that `ngraph_runtime.serving.load` takes, and `parameters.extra` has its
    options. Without them, `batch` is the model's `max_batch_size`, and the first axis holds rows if that is above 1.
    """

    async def load(self) -> bool:
        path = await get_model_uri(self.settings)
        options: dict[str, Any] = dict(self.settings.parameters.extra or {})
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ModelError(f"model {self.name}: parameters.extra has {', '.join(unknown)}, expected some of "
                             f"{', '.join(_OPTIONS)}")
        options.setdefault("batch", max(self.settings.max_batch_size, 1))
        options.setdefault("rows", options["batch"] > 1)
        served = await _on_a_thread(partial(load, path, **options))
        self._served: ServedModel = served
        self.inputs = [_tensor(served, port) for port in served.inputs]
        self.outputs = [_tensor(served, port) for port in served.outputs]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        try:
            found = await _on_a_thread(partial(self._served.run, self._arrays(payload)))
        except InputError as error:
            raise InferenceError(f"model {self.name}: {error}") from error
        by_name = {port.name: array for port, array in zip(self._served.outputs, found)}
        names = [one.name for one in payload.outputs] if payload.outputs else list(by_name)
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise InferenceError(f"model {self.name}: there is no output {', '.join(unknown)}: the outputs are "
                                 f"{', '.join(by_name)}")
        return InferenceResponse(id=payload.id, model_name=self.name, model_version=self.version,
                                 outputs=[_encoded(name, by_name[name]) for name in names])

    async def unload(self) -> bool:
        del self._served
        return True

    def _arrays(self, payload: InferenceRequest) -> list[np.ndarray[Any, Any]]:
        """The request's inputs in the model's order.

        Raises:
            InputError: an input is missing, is none of the model's, or its data do not fill its shape.
        """
        given = {one.name: one for one in payload.inputs}
        names = [port.name for port in self._served.inputs]
        if set(given) != set(names):
            raise InputError(f"found the inputs {', '.join(given) or 'none'}, expected {', '.join(names)}")
        arrays = []
        for name in names:
            try:
                arrays.append(np.asarray(self.decode(given[name], default_codec=NumpyCodec)))
            except (ValueError, TypeError) as error:
                raise InputError(f"input {name}: its data are no {given[name].datatype} of shape "
                                 f"{list(given[name].shape)}: {error}") from error
        return arrays


async def _on_a_thread(call: Any) -> Any:
    """The server answers other requests meanwhile."""
    return await asyncio.get_running_loop().run_in_executor(shared_pool(), call)


def _tensor(served: ServedModel, port: Port) -> MetadataTensor:
    return MetadataTensor(name=port.name, datatype=_datatype(port.dtype), shape=list(served.shape(port)))


def _datatype(dtype: np.dtype[Any]) -> str:
    """The protocol's name, such as FP32."""
    kind = _KINDS[dtype.kind]
    return kind if kind == "BOOL" else f"{kind}{8 * dtype.itemsize}"


def _encoded(name: str, array: np.ndarray[Any, Any]) -> ResponseOutput:
    output = NumpyCodec.encode_output(name, array)
    output.shape = list(array.shape)  # where the codec adds an axis to vectors
    return output
