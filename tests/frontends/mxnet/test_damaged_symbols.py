"""Symbols that ask for more than anybody has, and damaged ones: each ends in an error of ours, at once."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import ngraph_mxnet
from ngraph_mxnet.base.errors import ModelError, NGraphError, UnsupportedError
from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
from ngraph_mxnet.ir import Builder

Nodes = list[dict[str, Any]]
LONG = 1 << 36
HUGE = str(LONG)


def variable(name: str = "x") -> dict[str, Any]:
    return {"op": "null", "name": name, "inputs": []}


def node(op: str, inputs: list[list[int]], **attrs: str) -> dict[str, Any]:
    return {"op": op, "name": "op", "attrs": attrs, "inputs": inputs}


def symbol(*nodes: dict[str, Any], heads: list[list[int]] | None = None) -> str:
    return json.dumps({
        "nodes": nodes, "arg_nodes": [place for place, one in enumerate(nodes) if one["op"] == "null"],
        "heads": heads or [[len(nodes) - 1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}})


@pytest.mark.parametrize(("op", "attrs", "shape"), [
    ("_arange", {"start": "0", "stop": HUGE}, None), ("_linspace", {"start": "0", "stop": "1", "num": HUGE}, None),
    ("_npi_logspace", {"start": "0", "stop": "1", "num": HUGE}, None), ("_eye", {"N": HUGE}, None),
    ("_eye", {"N": "1", "M": HUGE}, None), ("_npi_identity", {"shape": f"({HUGE}, {HUGE})"}, None),
    ("_npi_indices", {"dimensions": f"({HUGE},)"}, None), ("_npi_hanning", {"M": HUGE}, None),
    ("_np_diag", {}, (LONG,)), ("_linalg_makediag", {"offset": "70000"}, (2,)), ("_np_diagflat", {}, (LONG,)),
    ("_linalg_extracttrian", {}, (1 << 18, 1 << 18)),
    ("_linalg_maketrian", {}, (LONG,)), ("_linalg_maketrian", {"offset": "70000"}, (1,)),
    ("_npi_tril", {}, (1 << 18, 1 << 18)), ("_contrib_index_array", {}, (LONG,)),
    ("_contrib_arange_like", {}, (LONG,)), ("one_hot", {"depth": "2"}, (LONG,)),
    ("topk", {"ret_typ": "mask"}, (LONG, 2)), ("_contrib_MultiBoxPrior", {}, (1, 1, 1 << 18, 1 << 18)),
    ("GridGenerator", {"transform_type": "warp"}, (1, 2, 1 << 18, 1 << 18)),
    ("GridGenerator", {"transform_type": "affine", "target_shape": "(1048576, 1048576)"}, (1, 6)),
    ("_npi_pad", {"mode": "reflect", "pad_width": "((1, 1),)"}, (LONG,)),
])
def test_a_constant_is_bounded_before_it_is_made(op: str, attrs: dict[str, str], shape: tuple[int, ...] | None) -> None:
    nodes = [node(op, [], **attrs)] if shape is None else [variable(), node(op, [[0, 0, 0]], **attrs)]
    with pytest.raises(UnsupportedError, match=f"mx:op {op}: a constant of [0-9]+ elements, expected at most 16777216"):
        import_symbol(symbol(*nodes), {} if shape is None else {"x": shape})


def test_a_gamma_of_ones_is_bounded() -> None:
    with pytest.raises(UnsupportedError, match="mx:op BatchNorm: a constant of 68719476736 elements"):
        import_symbol(symbol(variable(), node("BatchNorm", [[0, 0, 0]] * 5)), {"x": (LONG,)})


def test_constants_are_bounded_together() -> None:
    ranges = [{**node("_arange", [], start="0", stop=str(1 << 24)), "name": f"op{place}"} for place in range(6)]
    with pytest.raises(UnsupportedError, match=r"mx:op4 _arange: the constants up to here have 335544320 bytes"):
        import_symbol(symbol(*ranges), {})


@pytest.mark.parametrize(("nodes", "text"), [
    ([variable(), node("_plus_scalar", [[0, 0, 0]], scalar="inf")], "its inputs or attributes do not fit"),
    ([variable(), node("_npi_diff", [[0, 0, 0]], n="5000")], "at most 1024 are taken"),
    ([variable(), node("relu", [[0, 0, 0]], dtype="(")], "no support for dtype"),
    ([node("_zeros", [], shape="(2,)", dtype="(")], r"attribute dtype is '\(', expected a dtype"),
    ([node("all_finite", [])], "found 0 inputs"),
    ([variable(), node("tile", [[0, 0, 0]], reps=f"({HUGE},)")], "output 0 is i32.* larger than 1099511627776 bytes"),
    ([{**variable("y"), "attrs": {"__dtype__": "9" * 5000}}], "MXNet dtype number 999999999 has no element type"),
    ([{**variable("y"), "attrs": {"__shape__": "9" * 5000}}], "shape '9{79}, expected sizes of at most 18 digits"),
    ([node("_zeros", [], shape="(-" + "9" * 5000 + ",)")], "expected sizes of at most 18 digits"),
    ([variable(), node("Reshape", [[0, 0, 0]], shape="9" * 5000)], "attribute shape is '9{79}, expected a tuple of"),
])
def test_attributes_that_fit_nothing(nodes: Nodes, text: str) -> None:
    with pytest.raises(NGraphError, match=text):
        import_symbol(symbol(*nodes), {"x": (2, 6000)}, {"x": "int32"})


@pytest.mark.timeout(60)
def test_a_chain_of_squares_is_compiled_at_once() -> None:
    squares = [{**node("elemwise_mul", [[place, 0, 0]] * 2), "name": f"op{place}"} for place in range(60)]
    text = symbol(variable(), *squares)
    assert ngraph_mxnet.compile(text, "INTERPRETER", params={}, shapes={"x": (1,)})(np.ones(1, np.float32))[0] == 1


def test_layers_are_bounded() -> None:
    names = ("x", "parameters", "state", "cell")
    nodes = [*map(variable, names), node("RNN", [[place, 0, 0] for place in range(4)], mode="lstm", state_size="1",
                                         num_layers=str(1 << 31))]
    with pytest.raises(UnsupportedError, match="num_layers=2147483648, expected at most 1024"):
        import_symbol(symbol(*nodes), {"x": (1, 1, 1)})


def test_a_size_within_the_graph_that_no_memory_has() -> None:
    b = Builder()
    value = b.parameter("x", (1,))
    for _ in range(50):
        value = b.concat(value, value, axis=0)
    with pytest.raises(UnsupportedError, match=r"the CPU can't run graph main: a size of [0-9]+"):
        ngraph_mxnet.compile(b.results(value), "CPU")


def nested(levels: int) -> dict[str, Any]:
    body = json.loads(symbol(variable()))
    for _ in range(levels):
        body = json.loads(symbol(variable(), {**node("_cond", [[0, 0, 0]]), "subgraphs": [body]}))
    return body  # type: ignore[no-any-return]  # it is JSON


@pytest.mark.parametrize(("text", "told"), [
    (symbol(variable(), node("relu", [[0, 1, 0]])), "nodes.1. reads output 1 of the variable x, which has one"),
    (symbol(variable(), heads=[[0, 3, 0]]), "heads reads output 3 of the variable x"),
    (symbol(variable(), {**node("_cond", [[0, 0, 0]]), "subgraphs": 5}), "subgraphs is int, expected a list"),
    (json.dumps(nested(17)), "has graphs within graphs, more than 16 deep"),
    ('{"nodes": ' + "[" * 100_000, "symbol JSON does not parse"),
    ('{"nodes": ' + "9" * 100_000 + "}", "symbol JSON does not parse"),
])
def test_damage_is_told(text: str, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        parse_symbol(text)


def test_the_file_is_named(tmp_path: Any) -> None:
    path = tmp_path / "net-symbol.json"
    for text in (symbol(variable(), heads=[[0, 3, 0]]), "{", "[]", "\0"):
        path.write_text(text)
        with pytest.raises(ModelError, match=r"net-symbol\.json: symbol JSON|can't read .*net-symbol\.json"):
            ngraph_mxnet.compile(path, params={}, shapes={"x": (2,)})
    path.write_bytes(b'{"\xff"')
    with pytest.raises(ModelError, match=r"can't read .*net-symbol\.json"):
        ngraph_mxnet.compile(path, params={}, shapes={"x": (2,)})


@pytest.mark.parametrize("levels", [1, 16])
def test_a_few_levels_are_read(levels: int) -> None:
    assert len(parse_symbol(json.dumps(nested(levels))).nodes) == 2


def test_outputs_that_a_branch_has_not() -> None:
    body = json.loads(symbol(variable()))
    chosen = {**node("_cond", [[0, 0, 0]], num_outputs="1", cond_input_locs="(0,)", then_input_locs="(0,)",
                     else_input_locs="(0,)"), "subgraphs": [body] * 3}
    import_symbol(symbol(variable(), chosen), {"x": (1,)})
    with pytest.raises(UnsupportedError, match="mx:op _cond: its output 2 is read, and it has 1"):
        import_symbol(symbol(variable(), chosen, heads=[[1, 2, 0]]), {"x": (1,)})
