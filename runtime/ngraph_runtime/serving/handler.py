"""The handler of multi-model-server and TorchServe, `ngraph_runtime.serving.handler:handle`: docs/serving.md.

It serves a folder as SageMaker unpacks `model.tar.gz`: a symbol, its weights, its shapes, and perhaps a script
`code/inference.py` with `transform_fn`, or with some of `input_fn`, `predict_fn` and `output_fn`.
"""

from __future__ import annotations

import importlib.util
import inspect
import io
import json
import logging
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

from ngraph_runtime.errors import InputError, ModelError
from ngraph_runtime.model import Array
from ngraph_runtime.serving.loading import load
from ngraph_runtime.serving.served import ServedModel, converted

JSON, CSV, NPY, NPZ = "application/json", "text/csv", "application/x-npy", "application/x-npz"
_FUNCTIONS = ("transform_fn", "input_fn", "predict_fn", "output_fn")
_log = logging.getLogger(__name__)


class RefusedError(Exception):
    """A request that gets this HTTP status, with the error's text as its answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Output(np.ndarray):
    """An output as scripts that were written for MXNet take it."""

    def asnumpy(self) -> Array[Any, Any]:
        return self.view(np.ndarray)


class ScriptModel:
    """The model as the functions of a script call it, as a Gluon block or as a Module."""

    def __init__(self, served: ServedModel) -> None:
        self.served = served

    def __call__(self, *values: Any) -> Output | list[Output]:
        """The only output, or a list of all.

        Args:
            values: the inputs in the model's order, or one list of them: NumPy's arrays, MXNet's, or lists of numbers,
                which are converted to the dtype of the input.

        Raises:
            InputError: they do not fit the model.
        """
        given = values[0] if len(values) == 1 and len(self.served.inputs) > 1 else values
        arrays = [converted(value.asnumpy() if hasattr(value, "asnumpy") else value, port)
                  for value, port in zip(given, self.served.inputs)]
        if len(given) != len(arrays):
            raise InputError(f"found {len(given)} inputs, expected {len(self.served.inputs)}")
        outputs = [output.view(Output) for output in self.served.run(arrays)]
        return outputs[0] if len(outputs) == 1 else outputs

    predict = __call__


class _Request(NamedTuple):
    body: Any
    content_type: str
    accept: str


class Handler:
    """What a worker has: one model, and the functions of its script."""

    def __init__(self, context: Any) -> None:
        """Loads the model, and compiles it at the first time.

        Args:
            context: the server's. `system_properties` has `model_dir`, and `batch_size`, the largest number of requests
                that the server hands over at once: the model is compiled for as many rows.

        Raises:
            ModelError: there is no such model, nothing compiles it, or its script can't be used.
        """
        properties = context.system_properties
        folder = Path(properties["model_dir"])
        self.served = load(folder, batch=max(1, int(properties.get("batch_size") or 1)))
        self.model = ScriptModel(self.served)
        self._script = _functions(folder)

    def handle(self, data: Sequence[Mapping[str, Any]], context: Any) -> list[Any]:
        """An answer for each request. A request that fails has a status and a text of its own."""
        requests = [_attempt(_request, item, number, context) for number, item in enumerate(data)]
        if self._script:
            answers = [_attempt(self._by_script, request, context) for request in requests]
        else:
            outputs = self._predicted([_attempt(self._inputs, request) for request in requests])
            answers = [_attempt(_encoded, output, request) for output, request in zip(outputs, requests)]
        return [_answer(answer, number, context) for number, answer in enumerate(answers)]

    def _by_script(self, request: _Request, context: Any) -> Any:
        body, content_type, accept = request
        if isinstance(body, (bytes, bytearray)) and content_type in (JSON, CSV):
            body = body.decode("utf-8")
        elif not isinstance(body, (str, bytes, bytearray)):
            body = json.dumps(body)  # the server has decoded it
        script = self._script
        if "transform_fn" in script:
            found = _call(script["transform_fn"], self.model, body, content_type, accept, context=context)
        else:
            if "input_fn" in script:
                given = _call(script["input_fn"], body, content_type, model=self.model, context=context)
            else:
                given = self._inputs(request)
                given = given[0] if len(given) == 1 else given
            predict = script.get("predict_fn", lambda data, model: model(data))
            found = _call(predict, given, self.model, context=context)
            if "output_fn" not in script:
                return _encoded(found if isinstance(found, list) else [found], request)
            found = _call(script["output_fn"], found, accept, context=context)
        return found if isinstance(found, tuple) else (found, accept)

    def _inputs(self, request: _Request) -> list[Array[Any, Any]]:
        """The request's arrays, in the order of the model's inputs.

        Raises:
            RefusedError: nobody knows its type of content.
            InputError: its content is none of this type, or no input of the model.
        """
        ports = self.served.inputs
        decode = _DECODERS.get(request.content_type)
        if decode is None:
            raise RefusedError(415, f"found the content type {request.content_type}, expected one of "
                               f"{', '.join(_DECODERS)}")
        try:
            found = decode(request.body)
        except (ValueError, TypeError, OSError, EOFError) as error:
            raise InputError(f"the request is no {request.content_type}: {error}") from error
        named = found if isinstance(found, dict) else {ports[0].name: found} if len(ports) == 1 else {}
        if set(named) != {port.name for port in ports}:
            raise InputError(f"found {', '.join(map(str, named)) or 'one array'}, expected the inputs "
                             f"{', '.join(port.name for port in ports)}, each under its name")
        arrays = [converted(named[port.name], port) for port in ports]
        if request.content_type == CSV:  # its rows are flat
            arrays = [array.reshape((-1, *self.served.shape(port)[1:])) if -1 not in self.served.shape(port)[1:]
                      else array for array, port in zip(arrays, ports)]
        return arrays

    def _predicted(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of each request, or its error. Requests of the same sizes run as rows of one call."""
        good = [arrays for arrays in inputs if not isinstance(arrays, Exception)]
        same = {tuple(array.shape[1:] for array in arrays) for arrays in good}
        if len(good) > 1 and len(same) == 1 and self.served.most_rows and all(one.ndim for arrays in good
                                                                              for one in arrays):
            outputs = _attempt(self.served.run, [np.concatenate(arrays) for arrays in zip(*good)])
            if not isinstance(outputs, Exception):
                ends = np.cumsum([len(arrays[0]) for arrays in good])[:-1]
                parts = iter(list(zip(*(np.split(output, ends) for output in outputs))))
                return [arrays if isinstance(arrays, Exception) else list(next(parts)) for arrays in inputs]
        return [_attempt(self.served.run, arrays) for arrays in inputs]


class _Worker:
    """The handler of this process, which serves one model."""

    handler: Handler | None = None


def handle(data: Any, context: Any) -> Any:
    """The entry point. The server calls it without data when it loads the model."""
    if _Worker.handler is None:
        _Worker.handler = Handler(context)
    return None if data is None else _Worker.handler.handle(data, context)


# ---- requests and answers --------------------------------------------------------------------------------------


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function gives, or its error; an error among the arguments is passed on."""
    for argument in arguments:
        if isinstance(argument, Exception):
            return argument
    try:
        return function(*arguments)
    except Exception as error:
        return error


def _request(item: Mapping[str, Any], number: int, context: Any) -> _Request:
    headers = {str(name).lower(): value for name, value in context.get_all_request_header(number).items()}
    content_type = str(headers.get("content-type") or JSON).partition(";")[0].strip().lower()
    default = os.environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", JSON)
    accepted = [one.partition(";")[0].strip() for one in str(headers.get("accept") or default).split(",")]
    accept = default if "*/*" in accepted else accepted[0]
    body = item.get("body", item.get("data"))
    if body is None:
        raise InputError(f"the request has the parts {', '.join(map(str, item)) or 'none'}, expected a body")
    return _Request(body, content_type, accept)


def _answer(answer: Any, number: int, context: Any) -> Any:
    """The answer's body, with its content type or status in the context."""
    if not isinstance(answer, Exception):
        body, content_type = answer
        context.set_response_content_type(number, content_type)
        return body
    status = answer.status if isinstance(answer, RefusedError) else 400 if isinstance(answer, InputError) else 500
    if status == 500:
        _log.error("request %d failed", number, exc_info=answer)
    context.set_response_status(status, type(answer).__name__, number)
    return str(answer)


def _json(body: Any) -> Any:
    return json.loads(body) if isinstance(body, (str, bytes, bytearray)) else body


def _csv(body: Any) -> Any:
    text = body.decode("utf-8") if isinstance(body, (bytes, bytearray)) else body
    return np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2)


def _arrays_of(body: Any) -> Any:
    """An array of NumPy's `.npy`, or arrays by name of an `.npz`; never a pickle."""
    found = np.load(io.BytesIO(body), allow_pickle=False)
    return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}


_DECODERS: dict[str, Callable[[Any], Any]] = {JSON: _json, CSV: _csv, NPY: _arrays_of, NPZ: _arrays_of}


def _encoded(outputs: Sequence[Array[Any, Any]], request: _Request) -> Any:
    """One output alone, several as a list; and the content type.

    Raises:
        RefusedError: no output can be of the type that the client accepts.
    """
    accept, several = request.accept, len(outputs) > 1
    if accept == JSON:
        listed = [np.asarray(output).tolist() for output in outputs]
        return json.dumps(listed if several else listed[0]), JSON
    if accept in (NPY, CSV) and not several:
        if accept == NPY:
            binary = io.BytesIO()
            np.save(binary, np.asarray(outputs[0]), allow_pickle=False)
            return binary.getvalue(), NPY
        text = io.StringIO()
        np.savetxt(text, outputs[0], delimiter=",", fmt="%s")
        return text.getvalue(), CSV
    raise RefusedError(406, f"found Accept: {accept}, expected {JSON}" + ("" if several else f", {NPY} or {CSV}"))


# ---- scripts ---------------------------------------------------------------------------------------------------


def _functions(folder: Path) -> dict[str, Callable[..., Any]]:
    """Those of the folder's script, by name.

    Raises:
        ModelError: the script imports what is not installed, or has functions of both kinds.
    """
    name = os.environ.get("SAGEMAKER_PROGRAM", "inference.py")
    path = next((place for place in (folder / "code" / name, folder / name) if place.is_file()), None)
    if path is None:
        return {}
    module = _imported(path)
    found = {one: getattr(module, one) for one in _FUNCTIONS if callable(getattr(module, one, None))}
    if "transform_fn" in found and len(found) > 1:
        raise ModelError(f"{path}: found {', '.join(found)}, expected transform_fn alone or the others")
    if hasattr(module, "model_fn"):
        _log.info("%s: its model_fn is not called, because the compiled model takes the place of its result", path)
    return found


def _imported(path: Path) -> ModuleType:
    """Under the name that its own modules know, with these beside it."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ModelError(f"{path}: {error}. Install it here, or do without it: the functions get NumPy's arrays, and "
                         "the model takes and gives them") from error
    return module


def _call(function: Callable[..., Any], *arguments: Any, **optional: Any) -> Any:
    """With those of the optional arguments that it names."""
    names = inspect.signature(function).parameters
    return function(*arguments, **{name: value for name, value in optional.items() if name in names})
