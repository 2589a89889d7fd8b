"""The handler of multi-model-server and TorchServe, called as they call it."""

from __future__ import annotations

import io
import json
import logging

import numpy as np
import pytest

from ngraph_runtime import ModelError
from ngraph_runtime.serving import handler as module
from ngraph_runtime.serving.handler import Handler

ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]
TWICE = [[2 * x for x in row] for row in ROWS]


class Context:
    """What a handler knows of the server: `mms.context.Context` and `ts.context.Context` have these members."""

    def __init__(self, model_dir, batch_size=1):
        self.system_properties = {"model_dir": str(model_dir), "batch_size": batch_size, "gpu_id": None}
        self.headers, self.types, self.statuses = [], {}, {}

    def get_all_request_header(self, idx):
        return self.headers[idx]

    def set_response_content_type(self, idx, value):
        self.types[idx] = value

    def set_response_status(self, code=200, phrase="", idx=0):
        self.statuses[idx] = code


@pytest.fixture
def folder(fake, tmp_path, monkeypatch):
    """A model that doubles two rows of three, compiled."""
    for name in ("SAGEMAKER_PROGRAM", "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"):
        monkeypatch.delenv(name, raising=False)
    made = tmp_path / "model"
    made.mkdir()
    (made / "model.ngraph").write_text("single")
    return made


@pytest.fixture
def serve(folder, monkeypatch):
    """Calls the handler with requests: a body, or a body and its headers."""
    monkeypatch.setattr("sys.path", list(module.sys.path))

    def call(*requests, word=None, script=None, **files):
        if word:
            (folder / "model.ngraph").write_text(word)
        if script is not None:
            files["inference.py"] = script
        for name, text in files.items():
            (folder / "code").mkdir(exist_ok=True)
            (folder / "code" / name).write_text(text)
        context = Context(folder)
        handler = Handler(context)
        pairs = [one if isinstance(one, tuple) else (one, {"Content-Type": "application/json"}) for one in requests]
        context.headers = [headers for _, headers in pairs]
        return handler.handle([{"body": body} for body, _ in pairs], context), context

    return call


def binary(save, *arguments, **named):
    file = io.BytesIO()
    save(file, *arguments, **named)
    return file.getvalue()


def test_the_entry_point_loads_once(folder, monkeypatch):
    monkeypatch.setattr(module, "_Worker", type("_Worker", (), {"handler": None}))
    context = Context(folder)
    assert module.handle(None, context) is None
    (folder / "model.ngraph").unlink()
    context.headers = [{}]
    assert json.loads(module.handle([{"body": ROWS}], context)[0]) == TWICE


# ---- types of content ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "headers"), [
    (json.dumps(ROWS).encode(), {"Content-Type": "application/json"}),
    (ROWS, {"content-type": "application/json; charset=utf-8"}),  # multi-model-server may have decoded it
    (json.dumps(ROWS), {}),
    (b"1,2,3\n4,5,6\n7,8,9\n", {"Content-Type": "text/csv"}),
    ("1,2,3,4,5,6,7,8,9", {"Content-Type": "text/csv"}),
    (binary(np.save, np.array(ROWS)), {"Content-Type": "application/x-npy"}),
    (binary(np.savez, data=np.array(ROWS, "f4")), {"Content-Type": "application/x-npz"}),
    (json.dumps({"data": ROWS}).encode(), {"Content-Type": "application/json", "Accept": "*/*"}),
])
def test_what_a_request_may_be(serve, body, headers):
    (answer,), context = serve((body, headers))
    assert context.statuses == {} and context.types == {0: "application/json"}
    assert json.loads(answer) == TWICE


@pytest.mark.parametrize(("accept", "read"), [
    ("application/json", json.loads), ("text/csv", lambda text: np.loadtxt(io.StringIO(text), delimiter=",").tolist()),
    ("application/x-npy", lambda content: np.load(io.BytesIO(content)).tolist()),
    ("application/x-npy;q=0.9, text/csv", lambda content: np.load(io.BytesIO(content)).tolist())])
def test_what_an_answer_may_be(serve, monkeypatch, accept, read):
    (answer,), context = serve((ROWS, {"accept": accept}))
    assert read(answer) == TWICE and context.types == {0: accept.partition(";")[0]}
    monkeypatch.setenv("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", accept.partition(";")[0])
    assert read(serve((ROWS, {"accept": "*/*"}))[0][0]) == TWICE


def test_models_of_several_inputs_and_outputs(serve):
    named = {"left": [1.0], "right": [2.0]}
    (answer,), _ = serve(json.dumps(named), word="pairs")
    assert json.loads(answer) == [[1.0], [2.0]]
    (first, second), context = serve(json.dumps([1.0]), (json.dumps(named), {"Accept": "text/csv"}), word="pairs")
    assert context.statuses == {0: 400, 1: 406}
    assert first == "found one array, expected the inputs left, right, each under its name"
    assert second == "found Accept: text/csv, expected application/json"


@pytest.mark.parametrize(("request_", "status", "text"), [
    ((b"\xff\xd8", {"Content-Type": "image/jpeg"}), 415, "found the content type image/jpeg, expected one of"),
    ((ROWS, {"Accept": "image/png"}), 406, "found Accept: image/png, expected application/json, application/x-npy"),
    (b"{", 400, "the request is no application/json"), (b"\xff", 400, "the request is no application/json"),
    ((b"no array", {"Content-Type": "application/x-npy"}), 400, "the request is no application/x-npy"),
    ((binary(np.save, np.array([{}]), allow_pickle=True), {"Content-Type": "application/x-npy"}), 400, "Object arrays"),
    ([["a"]], 400, "input data: found no array of numbers"), ([[1, 2], [3]], 400, "input data: found no array"),
    ([[1.0, 2.0]], 400, "input data: found shape [1,2], expected [2,3]"),
    ({"x": [1]}, 400, "found x, expected the inputs data"), (None, 400, "expected a body")])
def test_what_is_refused_has_a_status_and_leaves_the_others_alone(serve, request_, status, text):
    answers, context = serve(ROWS, request_, ROWS[:1])
    assert context.statuses == {1: status} and text in answers[1]
    assert json.loads(answers[0]) == TWICE and json.loads(answers[2]) == TWICE[:1]


def test_requests_that_come_together_run_together(serve, monkeypatch):
    rows = []
    monkeypatch.setattr("ngraph_runtime.serving.served.ServedModel._call",
                        lambda self, arrays, size: rows.append(size) or [2 * arrays[0]])
    answers, _ = serve(ROWS, b"[", ROWS[:2], ROWS[2:], word="ranged")
    assert [json.loads(answers[number]) for number in (0, 2, 3)] == [TWICE, TWICE[:2], TWICE[2:]]
    assert rows == [6]


def test_a_failure_of_the_model_is_told_and_logged(serve, caplog):
    with caplog.at_level(logging.ERROR):
        (answer,), context = serve([0, 3], word="probe")
    assert context.statuses == {0: 500} and "step 3 of probe failed" in answer
    assert "request 0 failed" in caplog.text


# ---- scripts ---------------------------------------------------------------------------------------------------

TRANSFORM = """
import json
from beside import scale
def model_fn(model_dir):
    raise AssertionError("nobody calls it")
def transform_fn(net, data, content_type, accept):
    output = net(scale(json.loads(data)))
    return json.dumps(output.asnumpy().argmax(axis=1).tolist()), "application/jsonlines"
"""
FUNCTIONS = {
    "input_fn": "def input_fn(body, content_type):\n    import json\n    return [json.loads(body)['row']]",
    "predict_fn": "def predict_fn(data, model):\n    return model.predict(data) + 1",
    "output_fn": "def output_fn(prediction, accept):\n    return accept + ' ' + str(prediction.tolist()), 'text/plain'",
}


def test_a_script_that_transforms(serve):
    (answer,), context = serve(json.dumps(ROWS), script=TRANSFORM, **{"beside.py": "def scale(x):\n    return x"})
    assert json.loads(answer) == [2, 2, 2] and context.types == {0: "application/jsonlines"}


@pytest.mark.parametrize("names", [("input_fn",), ("predict_fn",), ("output_fn",), tuple(FUNCTIONS)])
def test_a_script_with_some_functions(serve, names):
    body = {"row": ROWS[0]} if "input_fn" in names else ROWS[:1]
    (answer,), context = serve((json.dumps(body).encode(), {}), script="\n".join(FUNCTIONS[name] for name in names))
    expected = [[x + ("predict_fn" in names) for x in TWICE[0]]]
    assert context.statuses == {}
    if "output_fn" in names:
        assert (answer, context.types) == (f"application/json {expected}", {0: "text/plain"})
    else:
        assert (json.loads(answer), context.types) == (expected, {0: "application/json"})


def test_optional_arguments_and_arrays_of_other_libraries(serve):
    """Old input functions take the model; newer functions of all kinds take the context."""
    script = """
import numpy as np
class NDArray:
    def __init__(self, x):
        self.x = x
    def asnumpy(self):
        return self.x
def input_fn(body, content_type, model):
    return NDArray(np.zeros((2, 3)) + len(model.served.inputs))
def output_fn(prediction, accept, context):
    return str(type(context).__name__) + str(prediction.sum())
"""
    assert serve(b"any", script=script)[0] == ["Context12.0"]


def test_a_script_of_another_name(serve, folder, monkeypatch):
    monkeypatch.setenv("SAGEMAKER_PROGRAM", "entry.py")
    assert json.loads(serve(ROWS, script="raise AssertionError")[0][0]) == TWICE
    (folder / "entry.py").write_text("def output_fn(prediction, accept):\n    return 'mine'")
    assert serve(ROWS)[0] == ["mine"]


def test_an_error_of_a_script_has_a_status(serve):
    (first,), context = serve(ROWS, script="def predict_fn(data, model):\n    return model(data, data)")
    assert context.statuses == {0: 400} and first == "found 2 inputs, expected 1"
    (first,), context = serve(ROWS, script="def predict_fn(data, model):\n    return 1 / 0")
    assert context.statuses == {0: 500} and first == "division by zero"


@pytest.mark.parametrize(("script", "text"), [
    ("import mxnet_of_old", "No module named 'mxnet_of_old'. Install it here, or do without it"),
    ("def transform_fn(): ...\ndef input_fn(): ...", "found transform_fn, input_fn, expected transform_fn alone")])
def test_scripts_that_can_not_be_used(serve, script, text):
    with pytest.raises(ModelError, match=r"inference\.py: ") as raised:
        serve(ROWS, script=script)
    assert text in str(raised.value)
