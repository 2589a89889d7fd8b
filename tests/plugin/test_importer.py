"""Every rule against MXNet itself, random attributes, and whole models."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from mxnet_records import RECORDS, Record, op, sym
from native_runs import all_shapes, compare, import_mxnet, mx

from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.frontends.mxnet.rules.registry import add_rule, all_rules
from ngraph_mxnet.frontends.mxnet.rules.shapes import RESHAPE, resolve_shape
from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol
from ngraph_mxnet.ir import count_ops

# ---- rules ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_rule_agrees_with_native(record: Record) -> None:
    compare(record.build(), record.shapes, low=record.low, high=record.high)


def test_ties_nan_and_infinities() -> None:
    data = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 8388609.0, np.nan, np.inf, -np.inf, 0, -0.0], "f")
    for name in ("rint", "round", "fix", "ceil", "floor", "sign", "relu", "abs", "softsign"):
        graph = import_mxnet(op(name, data.shape).build(), x0=data.shape)
        values = {graph.parameters[0]: data}
        for node in graph.nodes:
            outputs = node.op.evaluate([values[operand] for operand in node.inputs], node.attrs)
            values.update(zip(node.outputs, outputs, strict=True))
        expected = getattr(mx.nd, name)(mx.nd.array(data)).asnumpy()
        np.testing.assert_array_equal(values[graph.results[0]], expected, err_msg=name)


def test_modulo_signs_and_zero() -> None:
    graph = import_mxnet(op("broadcast_mod", (6,), (6,)).build(), x0=(6,), x1=(6,))
    left, right = np.array([5, -5, 5, -5, 0, 5], "f"), np.array([3, 3, -3, -3, 0, 0], "f")
    (found,) = graph.nodes[0].op.evaluate([left, right], {})
    np.testing.assert_array_equal(found, mx.nd.modulo(mx.nd.array(left), mx.nd.array(right)).asnumpy())


@pytest.mark.parametrize(("record", "reason"), [
    (op("Deconvolution", (1, 5, 5, 2), kernel=(3, 3), num_filter=2, layout="NHWC"), "layout=NHWC"),
    (op("Pooling", (1, 2, 9), kernel=(2,), pooling_convention="same", stride=(2,)), "=same"),
    (op("Pooling", (1, 2, 5), kernel=(2,), stride=(3,), pad=(1,), pooling_convention="full"), "overlap"),
    (op("SoftmaxOutput", (2, 3, 4, 5)), "MXNet's kernels disagree"),
    (op("Dropout", (2, 3), mode="always"), "mode=always is not supported"),
    (op("linalg_potri", (2, 2)), "stays with MXNet: it factorizes"),
    (op("take", (5, 3), (2,), mode="raise"), "mode=raise is not supported"),
], ids=lambda value: value.name if isinstance(value, Record) else "")
def test_what_stays_with_mxnet_says_why(record: Record, reason: str) -> None:
    symbol = record.build()
    shapes = {"x0": (1, 2, 9)} if "same" in reason else all_shapes(symbol, record.shapes)
    with pytest.raises(UnsupportedError, match=reason):
        import_symbol(symbol.tojson(), shapes)


def test_an_attribute_that_no_rule_reads_is_refused() -> None:
    text = op("relu", (2, 3)).build().tojson()
    nodes = json.loads(text)
    nodes["nodes"][-1]["attrs"] = {"leak": "0.5", "__note__": "x", "lr_mult": "2"}
    with pytest.raises(UnsupportedError, match=r"mx:op relu: no support for leak=0\.5$"):
        import_symbol(json.dumps(nodes), {"x0": (2, 3)})


def test_a_rule_is_registered_once_and_says_its_cases() -> None:
    with pytest.raises(ValueError, match="two rules"):
        add_rule(lambda b, attrs, x: x, "relu")
    names = [rule.lower.__name__ for rule in all_rules().values() if not rule.doc]
    assert set(names) <= {"<lambda>", "lower"}  # rows of a table have none


def test_a_rule_with_the_arguments_of_0_2_still_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "note_outside", lambda added: None)  # else this process would share nothing on disk
    monkeypatch.setitem(all_rules(), "_toy_older", None)
    del all_rules()["_toy_older"]
    with pytest.warns(DeprecationWarning, match=r"write \(b, attrs, \*inputs\)"):
        add_rule(lambda b, inputs, attrs, node: b.apply(attrs.text("op"), inputs[0]), "_toy_older")
    node = {"op": "_toy_older", "name": "toy", "attrs": {"op": "exp"}, "inputs": [[0, 0, 0]]}
    graph = import_symbol(json.dumps({"nodes": [{"op": "null", "name": "x", "inputs": []}, node], "arg_nodes": [0],
                                      "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}), {"x": (2,)})
    assert count_ops(graph.nodes) == {"exp": 1}


# ---- random attributes ----------------------------------------------------------------------------------

@st.composite
def reshape_codes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """A shape, codes that mean something for it, and whether they are read from the right.

    MXNet aborts the process on some that mean nothing, such as a -4 read after its sizes.
    """
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=5)))
    codes: list[int] = []
    at = 0
    while at < len(shape):
        kind = draw(st.sampled_from(["same", "copy", "join", "split", "rest"]))
        if kind == "join" and at + 1 < len(shape):
            codes.append(-3)
            at += 2
            continue
        if kind == "rest":
            codes.append(-2)
            break
        if kind == "split":
            factor = draw(st.sampled_from([d for d in (1, 2, 3) if shape[at] % d == 0]))
            codes += [-4, *draw(st.sampled_from([(factor, shape[at] // factor), (-1, factor), (factor, -1)]))]
        else:
            codes.append(0 if kind == "copy" else shape[at])
        at += 1
    plain = [i for i, code in enumerate(codes) if code > 0 and -4 not in codes[max(0, i - 2):i]]
    if plain and -1 not in codes and draw(st.booleans()):
        codes[draw(st.sampled_from(plain))] = -1
    return (shape[::-1], tuple(codes[::-1]), True) if draw(st.booleans()) else (shape, tuple(codes), False)


@given(reshape_codes())
def test_reshape_codes(case: tuple[tuple[int, ...], tuple[int, ...], bool]) -> None:
    shape, codes, reverse = case
    symbol = sym.reshape(sym.var("x0"), shape=codes, reverse=reverse)
    try:
        expected = symbol.infer_shape(x0=shape)[1][0]
    except mx.base.MXNetError:
        assume(False)
    assume(np.prod(expected) == np.prod(shape))  # else MXNet fails when it runs
    assert resolve_shape(codes, shape, RESHAPE, reverse=reverse) == expected


@given(st.data())
def test_pooling_conventions(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 2))
    sizes = [data.draw(st.integers(3, 9)) for _ in range(rank)]
    kernel = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    pad = [data.draw(st.integers(0, k - 1)) for k in kernel]
    stride = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    kind = data.draw(st.sampled_from(["max", "avg", "sum"]))
    convention = data.draw(st.sampled_from(["valid", "full"]))
    include = data.draw(st.booleans())
    symbol = sym.Pooling(sym.var("x0"), kernel=kernel, pad=pad, stride=stride, pool_type=kind,
                         pooling_convention=convention, count_include_pad=include)
    try:
        compare(symbol, {"x0": (2, 3, *sizes)})
    except UnsupportedError as error:  # a window outside of the data
        if "overlap" not in str(error):
            raise


@given(st.data())
def test_slice_bounds(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    count = data.draw(st.integers(1, len(shape)))
    # MXNet does not clip negative bounds as Python does: it reads before the beginning.
    bounds = [st.one_of(st.none(), st.integers(-size, size)) for size in shape[:count]]
    begin, end = ([data.draw(bound) for bound in bounds] for _ in range(2))
    step = [data.draw(st.sampled_from([None, 1, 2, -1, -2])) for _ in range(count)]
    symbol = sym.slice(sym.var("x0"), begin=begin, end=end, step=step)
    try:
        expected = symbol.infer_shape(x0=shape)
    except mx.base.MXNetError:
        assume(False)
    python = np.zeros(shape)[tuple(slice(*bounds) for bounds in zip(begin, end, step, strict=True))]
    assume(python.size and expected[1] and expected[1][0] == python.shape)
    compare(symbol, {"x0": shape})


TEXTS = ["None", "()", "(1,)", "(0, -1)", "-3", "0", "1", "True", "x", "1e9", "(1, 2, 3)", "float16", "nan"]


@given(st.sampled_from(RECORDS), st.data())
def test_no_attribute_and_no_shape_crashes_a_rule(record: Record, data: st.DataObject) -> None:
    symbol = record.build()
    shapes = all_shapes(symbol, record.shapes)
    root = json.loads(symbol.tojson())
    attrs = root["nodes"][-1].setdefault("attrs", {})
    attrs[data.draw(st.sampled_from([*attrs, "axis"]))] = data.draw(st.sampled_from(TEXTS))
    changed = data.draw(st.sampled_from([None, *shapes]))
    if changed is not None:
        shapes[changed] = tuple(data.draw(st.lists(st.integers(0, 5), max_size=5)))
    with contextlib.suppress(UnsupportedError, ModelError):
        import_symbol(json.dumps(root), shapes)


# ---- graphs ---------------------------------------------------------------------------------------------

def test_origins_and_weights() -> None:
    data, weight = sym.var("data"), sym.var("weight")
    conv = sym.Convolution(data, weight, kernel=(1, 1), num_filter=2, no_bias=True, name="conv")
    graph = import_mxnet(sym.BatchNorm(conv, name="bn"), data=(1, 2, 3, 3))
    assert {p.name for p in graph.parameters if p.is_weight} == {
        "weight", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"}
    assert [node.origin for node in graph.nodes if node.op.name == "convolution"] == ["mx:conv Convolution"]


def test_weights_that_are_joined_stay_weights() -> None:
    """As the projections of queries and keys are, whose product is one."""
    names = [mx.sym.var(name) for name in ("query", "key")]
    weight = mx.sym.concat(*(mx.sym.reshape(v, shape=(2, -1, 0), reverse=True) for v in names), dim=-2)
    out = mx.sym.FullyConnected(mx.sym.var("data"), mx.sym.reshape(weight, shape=(-1, 0), reverse=True),
                                num_hidden=8, no_bias=True)
    graph = import_mxnet(out, data=(3, 5), query=(4, 5), key=(4, 5))
    assert {p.name for p in graph.parameters if p.is_weight} == {"query", "key"}
    joined_and_read = mx.sym.Group([out, names[0]])
    graph = import_mxnet(joined_and_read, data=(3, 5), query=(4, 5), key=(4, 5))
    assert {p.name for p in graph.parameters if p.is_weight} == {"key"}


def test_a_variable_that_is_also_data_is_no_weight() -> None:
    shared = sym.var("shared")
    out = sym.FullyConnected(shared, shared, num_hidden=3, no_bias=True)
    assert [p.is_weight for p in import_mxnet(out, shared=(3, 3)).parameters] == [False]
    weight = sym.var("weight")
    both = sym.Group([sym.FullyConnected(sym.var("x"), weight, num_hidden=3, no_bias=True), weight])
    graph = import_mxnet(both, x=(2, 4))
    assert not any(p.is_weight for p in graph.parameters)
    assert not any(result.is_parameter for result in graph.results)


def test_label_stays_an_input() -> None:
    graph = import_mxnet(sym.SoftmaxOutput(sym.var("x"), sym.var("label")), x=(2, 3))
    assert [p.name for p in graph.parameters] == ["x", "label"]
    assert graph.readers()[graph.parameters[1]] == []


def test_results_are_distinct_and_no_parameters() -> None:
    x = sym.var("x")
    relu = sym.relu(x)
    graph = compare(sym.Group([relu, x, relu, sym.BlockGrad(x)]), {"x": (2, 3)})
    assert len(set(graph.results)) == 4
    assert not any(result.is_parameter for result in graph.results)


def test_a_missing_shape_is_named() -> None:
    with pytest.raises(ModelError, match="the shape of x1 is not known"):
        import_symbol(op("dot", (2, 2), (2, 2)).build().tojson(), {"x0": (2, 2)})


@pytest.mark.parametrize(("text", "where"), [
    ("", "does not parse"), ("[]", "expected an object"), ("{}", "'nodes' is NoneType"),
    ('{"nodes": [{"op": "null"}]}', r"nodes\[0\] needs the strings"),
    ('{"nodes": [{"op": "exp", "name": "a", "inputs": [[0, 0, 0]]}], "heads": []}', r"inputs\[0\] is \[0, 0"),
    ('{"nodes": [{"op": "null", "name": "a", "inputs": []}], "heads": []}', "no output"),
    ('{"nodes": [{"op": "null", "name": "a"}], "heads": [[1, 0]]}', r"heads\[0\]"),
    ('{"nodes": [{"op": "null", "name": "a"}], "arg_nodes": [true], "heads": [[0, 0]]}', r"arg_nodes\[0\]"),
    ('{"nodes": [{"op": "null", "name": "a"}], "arg_nodes": [], "heads": [[0, 0]]}', "lists 0 of 1"),
    ('{"nodes": [{"op": "null", "name": "a", "attrs": 3}], "heads": [[0, 0]]}', r"\.attrs is int"),
])
def test_corrupt_json_says_where(text: str, where: str) -> None:
    with pytest.raises(ModelError, match=where):
        parse_symbol(text)


def test_json_of_every_generation() -> None:
    for key in ("param", "attr", "attrs"):
        attrs = {"kernel": "(2L, 2L)", "pool_type": "avg"}
        nodes = [{"op": "null", "name": "x", "inputs": []},
                 {"op": "Pooling", "name": "p", key: attrs, "inputs": [[0, 0]]}]
        text = json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0]]})
        graph = import_symbol(text, {"x": (1, 1, 4, 4)})
        assert [node.op.name for node in graph.nodes] == ["avg_pool"]


@pytest.mark.parametrize("value", ["(3, x)", "3.5", "(1"])
def test_a_malformed_attribute_is_named(value: str) -> None:
    text = json.loads(op("expand_dims", (2,), axis=0).build().tojson())
    text["nodes"][-1]["attrs"]["axis"] = value
    with pytest.raises(ModelError, match="mx:op expand_dims: attribute axis is"):
        import_symbol(json.dumps(text), {"x0": (2,)})


# ---- models ---------------------------------------------------------------------------------------------

ZOO = [
    "alexnet", *(f"densenet{depth}" for depth in (121, 161, 169, 201)), "inceptionv3",
    *(f"mobilenet{kind}{width}" for kind in ("", "v2_") for width in ("0.25", "0.5", "0.75", "1.0")),
    *(f"resnet{depth}_v{version}" for depth in (18, 34, 50, 101, 152) for version in (1, 2)),
    "squeezenet1.0", "squeezenet1.1",
    *(f"vgg{depth}{norm}" for depth in (11, 13, 16, 19) for norm in ("", "_bn")),
]


def zoo_symbol(name: str) -> mx.sym.Symbol:
    return mx.gluon.model_zoo.vision.get_model(name, prefix="net_")(sym.var("data"))


@pytest.mark.parametrize("name", ZOO)
def test_every_model_of_the_zoo_imports(name: str) -> None:
    size = 299 if name == "inceptionv3" else 224
    graph = import_mxnet(zoo_symbol(name), data=(1, 3, size, size))
    assert graph.results[0].shape == (1, 1000)
    assert [p.name for p in graph.parameters if not p.is_weight] == ["data"]
    assert "convolution" in count_ops(graph.nodes)


@pytest.mark.parametrize(("name", "size"), [
    ("squeezenet1.1", 64), ("mobilenet0.25", 32), ("mobilenetv2_0.25", 32), ("resnet18_v2", 32),
    pytest.param("resnet50_v1", 64, marks=pytest.mark.slow),
    pytest.param("densenet121", 224, marks=pytest.mark.slow),
    pytest.param("inceptionv3", 299, marks=pytest.mark.slow),
    pytest.param("vgg11_bn", 32, marks=pytest.mark.slow),
])
def test_models_agree_with_native(name: str, size: int) -> None:
    symbol = zoo_symbol(name)
    if name.startswith("squeezenet"):  # its last pool has a fixed size
        symbol = symbol.get_internals()["net_conv0_fwd_output"]
    # Weights so small keep activations of random networks within the range of float32.
    compare(symbol, {"data": (1, 3, size, size)}, low=-0.15, high=0.2, rtol=1e-3, atol=1e-4)
