"""Executors whose training steps are compiled (NGRAPH_TRAINING=1), against MXNet's own."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from mxnet_helpers import backend, check_that_all_is_kept, close, mx, needs_library

from ngraph_mxnet.ir.types import TensorType, f32
from ngraph_mxnet.plugin.training.graph import compile_step

pytestmark = needs_library


@pytest.fixture(autouse=True)
def trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "1")
    check_that_all_is_kept(monkeypatch)


def conv_net() -> mx.sym.Symbol:
    x = mx.sym.Variable("data")
    y = mx.sym.Convolution(x, kernel=(3, 3), stride=(2, 2), pad=(1, 1), num_filter=16, no_bias=True, name="first")
    y = mx.sym.Activation(mx.sym.BatchNorm(y, fix_gamma=False, name="norm"), act_type="relu")
    y = mx.sym.Pooling(y, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")
    y = y + mx.sym.Convolution(y, kernel=(1, 1), num_filter=16, name="second")
    y = mx.sym.Pooling(y, global_pool=True, pool_type="avg", kernel=(1, 1))
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(y, num_hidden=5, name="last"), name="softmax")


def executor(symbol: mx.sym.Symbol, value: str | None, grad_req: str | dict[str, str] = "write",
             **shapes: tuple[int, ...]) -> mx.executor.Executor:
    with backend(value):
        made = symbol.simple_bind(mx.cpu(), grad_req=grad_req, **shapes)
    rng = np.random.default_rng(0)
    for name, array in {**made.arg_dict, **made.aux_dict}.items():
        label = name.endswith("label")
        drawn = rng.integers(0, 5, array.shape) if label else rng.uniform(-0.5, 0.5, array.shape)
        array[:] = drawn + 1 if name.endswith(("var", "gamma")) else drawn
    for grad in made.grad_arrays:
        if grad is not None:
            grad[:] = 0
    return made


def both(symbol: mx.sym.Symbol, **options: object) -> list[mx.executor.Executor]:
    return [executor(symbol, value, **options) for value in ("NGRAPH", None)]  # type: ignore[arg-type]


def same_state(ours: mx.executor.Executor, theirs: mx.executor.Executor, rtol: float = 1e-3) -> None:
    for one, other in zip(ours.outputs, theirs.outputs, strict=True):
        close(one, other)
    for name in theirs.grad_dict:
        if theirs.grad_dict[name] is not None:
            close(ours.grad_dict[name], theirs.grad_dict[name], rtol=rtol, atol=1e-5)
    for name in theirs.aux_dict:
        close(ours.aux_dict[name], theirs.aux_dict[name])


def ran(made: mx.executor.Executor) -> bool:
    return made.training.ran


def test_a_step_gives_what_mxnet_gives() -> None:
    made = both(conv_net(), data=(4, 3, 24, 24))
    for number in range(3):
        for each in made:
            each.forward(is_train=True, data=mx.nd.array(np.random.default_rng(number).normal(size=(4, 3, 24, 24))))
            each.backward()
        assert ran(made[0])
        same_state(*made)
        for each in made:  # as an optimizer does
            for name, grad in each.grad_dict.items():
                if name != "data" and not name.endswith("label"):
                    each.arg_dict[name][:] -= 0.1 * grad
    for each in made:
        each.forward(is_train=False)
    close(made[0].outputs[0], made[1].outputs[0])


def test_gradients_are_added_or_left_out_as_asked() -> None:
    asked = {"data": "add", "first_weight": "add", "last_weight": "write", "norm_beta": "null"}
    made = both(conv_net(), data=(2, 3, 16, 16), grad_req=asked)
    for _ in range(3):
        for each in made:
            each.forward(is_train=True)
            each.backward()
    assert ran(made[0])
    same_state(*made)


def test_head_gradients_of_several_outputs() -> None:
    x, y = mx.sym.Variable("x"), mx.sym.Variable("y")
    symbol = mx.sym.Group([x * y, mx.sym.BlockGrad(mx.sym.exp(x)), mx.sym.tanh(x + y)])
    made = both(symbol, x=(3, 4), y=(3, 4))
    rng = np.random.default_rng(1)
    heads = [mx.nd.array(rng.normal(size=(3, 4))) for _ in range(3)]
    for each in made:
        each.forward(is_train=True)
        each.backward(heads)
    assert ran(made[0])
    same_state(*made)
    for each in made:
        each.forward(is_train=True)
        with pytest.raises(mx.MXNetError, match="head_gradient is required"):
            each.backward()
        with pytest.raises(mx.MXNetError, match=r"\(4, 3\)|\[4,3\]"):
            each.backward([heads[0].reshape((4, 3)), *heads[1:]])
        with pytest.raises(mx.MXNetError, match="head_gradient is required"):
            each.backward(heads[:1])
        with pytest.raises(TypeError, match="inputs must be NDArray"):
            each.backward([heads[0].asnumpy(), *heads[1:]])


@pytest.mark.parametrize("kind", ["fewer", "more", "numpy", "row_sparse", "csr", "float64", "ignored"])
def test_head_gradients_of_other_kinds(kind: str) -> None:
    x = mx.sym.Variable("x")
    made = both(mx.sym.Group([mx.sym.tanh(x), mx.sym.BlockGrad(mx.sym.exp(x))]), x=(3, 4))
    head = mx.nd.array(np.random.default_rng(1).normal(size=(3, 4)))
    given = {"fewer": [head], "more": [head, head, head * 2], "numpy": [head.as_np_ndarray()],
             "row_sparse": [head.tostype("row_sparse")], "csr": [head.tostype("csr"), head],
             "float64": head.astype("float64"), "ignored": [head, head.reshape((4, 3))]}[kind]
    for each in made:
        each.forward(is_train=True, x=np.ones((3, 4)))
        each.backward(given)
    assert ran(made[0])
    same_state(*made)


def test_images_that_are_read_between_their_pixels() -> None:
    x, grid = mx.sym.Variable("x"), mx.sym.Variable("grid")
    small = mx.sym.contrib.AdaptiveAvgPooling2D(x, output_size=(3, 4))
    grown = mx.sym.contrib.BilinearResize2D(small, height=7, width=9) + mx.sym.contrib.BilinearResize2D(
        x, height=7, width=9, align_corners=False)
    symbol = mx.sym.Group([mx.sym.BilinearSampler(grown, mx.sym.tanh(grid * 3) * 1.1), mx.sym.gamma(x + 1),
                           mx.sym.UpSampling(x, scale=2, sample_type="nearest"), mx.sym.gammaln(x - 2.75)])
    made = both(symbol, x=(2, 17, 5, 8), grid=(2, 2, 6, 5))
    heads = [mx.nd.array(np.random.default_rng(3).normal(size=output.shape)) for output in made[0].outputs]
    for each in made:
        each.forward(is_train=True)
        each.backward(heads)
    assert ran(made[0])
    same_state(*made)


@pytest.mark.parametrize("shape", [(1, 32, 1, 1), (1, 5, 1), (1, 16)])
def test_a_batch_norm_of_one_value_a_channel_gives_beta(shape: tuple[int, ...]) -> None:
    """Whatever the value's size: scale and shift would leave a sixteenth of it here."""
    made = executor(mx.sym.BatchNorm(mx.sym.var("data"), fix_gamma=False, eps=1e-5, name="norm"), "NGRAPH", data=shape)
    made.arg_dict["data"][:] = 12345.678
    made.arg_dict["norm_beta"][:] = 0.1
    [y] = made.forward(is_train=True)
    assert ran(made) and (y.asnumpy() == np.float32(0.1)).all()
    made.backward(mx.nd.ones(shape))
    assert not made.grad_dict["data"].asnumpy().any() and not made.grad_dict["norm_gamma"].asnumpy().any()


def test_inference_and_training_take_turns() -> None:
    made = both(conv_net(), data=(2, 3, 16, 16))
    for each in made:
        each.forward(is_train=True)
        each.forward(is_train=False)
        each.forward(is_train=True)
        each.backward()
    same_state(*made)
    for each in made:
        each.forward(is_train=False)
        each.backward()  # of the inference forward
    assert not ran(made[0])
    close(made[0].outputs[0], made[1].outputs[0])


def test_what_is_not_trained_is_told_and_left_to_mxnet(caplog: pytest.LogCaptureFixture) -> None:
    symbol = mx.sym.Dropout(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="one"), p=1, name="drop")
    made = executor(symbol, "NGRAPH", data=(2, 3))
    with caplog.at_level(logging.WARNING):
        made.forward(is_train=True)
        made.backward([mx.nd.ones((2, 4))])
    assert not ran(made)
    assert "training of drop_output: " in caplog.text and "p=1.0 drops everything" in caplog.text


def test_mxnet_trains_when_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "0")
    made = executor(conv_net(), "NGRAPH", data=(2, 3, 16, 16))
    made.forward(is_train=True)
    made.backward()
    assert not ran(made)


def test_unset_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NGRAPH_TRAINING")
    made = executor(conv_net(), "NGRAPH", data=(2, 3, 16, 16))
    made.forward(is_train=True)
    made.backward()
    assert ran(made)


def test_wrong_arguments_are_refused_as_by_mxnet() -> None:
    for each in both(conv_net(), data=(2, 3, 16, 16)):
        with pytest.raises(TypeError, match="Unknown argument other"):
            each.forward(is_train=True, other=mx.nd.ones((1,)))
        with pytest.raises(ValueError, match="Shape not match"):
            each.forward(is_train=True, data=mx.nd.ones((2, 3, 8, 8)))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_module_learns_the_same(optimizer: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(32, 3, 12, 12)).astype("f")
    y = (x[:, 0].mean(axis=(1, 2)) > 0.5).astype("f")
    found = []
    for value in ("NGRAPH", None):
        with backend(value):
            mx.random.seed(5)
            np.random.seed(5)
            module = mx.mod.Module(conv_net())
            module.fit(mx.io.NDArrayIter(x, y, batch_size=8, label_name="softmax_label"), num_epoch=3,
                       optimizer=optimizer, initializer=mx.init.Xavier(), optimizer_params={"learning_rate": 0.01})
            found.append(module)
    assert ran(found[0]._exec_group.execs[0])
    for mine, theirs in zip(found[0].get_params(), found[1].get_params(), strict=True):
        for name in theirs:
            close(mine[name], theirs[name], rtol=1e-2, atol=1e-3)


def test_bits_are_the_same_again() -> None:
    results = []
    for _ in range(2):
        made = executor(conv_net(), "NGRAPH", data=(4, 3, 24, 24))
        made.forward(is_train=True)
        made.backward()
        results.append([grad.asnumpy().tobytes() for grad in made.grad_arrays if grad is not None])
    assert results[0] == results[1]


@pytest.mark.parametrize("multiple", [False, True])
def test_labels_that_are_no_class_choose_none(multiple: bool) -> None:
    symbol = mx.sym.SoftmaxOutput(mx.sym.Variable("data"), multi_output=multiple, name="softmax")
    labels = np.array([-1, -0.5, 4.7, 5, 100], "f")
    made = both(symbol, data=(1, 5, 5) if multiple else (5, 5))
    for one in made:
        one.arg_dict["softmax_label"][:] = labels.reshape(one.arg_dict["softmax_label"].shape)
        one.forward(is_train=True)
        one.backward()
    assert ran(made[0])
    same_state(*made)


def test_an_output_that_the_way_back_reads_is_kept_once() -> None:
    from ngraph_mxnet.ir import TensorType, element_type
    from ngraph_mxnet.plugin.training.steps import Step

    symbol = mx.sym.SoftmaxOutput(mx.sym.Variable("data"), name="softmax")
    types = {name: TensorType(element_type("f32"), shape)
             for name, shape in (("data", (3, 5)), ("softmax_label", (3,)))}
    step = Step(symbol.tojson(), types, ["data"], recorded=False)
    assert (list(step.repeated.values()), step.saved_bytes) == ([0], 0)
    recorded = Step(symbol.tojson(), types, ["data"])
    assert not recorded.repeated and recorded.saved_bytes == 4 * 15


@pytest.mark.parametrize("shape", [(6,), (4, 3), (2, 3, 4)])
def test_gradients_that_are_no_derivatives(shape: tuple[int, ...]) -> None:
    """Below 0 MXNet's of selu is off; a batch of MakeLoss's are all axes but the last."""
    data = mx.sym.Variable("data")
    symbol = mx.sym.Group([mx.sym.LeakyReLU(data * 1, act_type="selu"),
                           mx.sym.MakeLoss(mx.sym.square(data), normalization="batch", grad_scale=3.0)])
    made = both(symbol, data=shape)
    heads = [mx.nd.array(np.random.default_rng(number).normal(size=shape)) for number in range(2)]
    for each in made:
        each.forward(is_train=True)
        each.backward(heads)
    assert ran(made[0])
    same_state(*made)


def test_gradients_through_integers_are_mxnets() -> None:
    """It hands them back as if nothing had been rounded; where none is wanted, integers are ours."""
    data, weight = mx.sym.Variable("data"), mx.sym.Variable("weight")
    for source, compiled in ((data * weight, False), (data + 0.5, True)):
        whole = mx.sym.cast(mx.sym.cast(source, dtype="int32"), dtype="float32")
        made = both(mx.sym.MakeLoss(whole * weight), data=(3, 4), weight=(3, 4), grad_req={"weight": "write"})
        for each in made:
            each.forward(is_train=True)
            each.backward()
        assert (made[0].training is not None and ran(made[0])) == compiled
        same_state(*made)


def _odd(rows: np.ndarray, kind: str) -> np.ndarray:
    """Make some rows extreme."""
    if kind == "large":
        rows *= 300
    elif kind == "masked":
        rows[0, 1:] = rows[1, ::2] = -np.inf
    elif kind == "nan":
        rows[1, 2] = np.nan
    return rows


@pytest.mark.parametrize("mode", ["clip", "wrap"])
@pytest.mark.parametrize("kind", ["usual", "large", "masked", "nan"])
@pytest.mark.parametrize("classes", [1, 5, 2100])
def test_a_loss_of_labels(classes: int, kind: str, mode: str) -> None:
    """As Gluon's, labels outside and whole numbers as floats included: without logarithms for each class."""
    x, label = mx.sym.Variable("x"), mx.sym.Variable("at")
    symbol = -mx.sym.pick(mx.sym.log_softmax(x), label, mode=mode, keepdims=True)
    made = both(symbol, x=(6, classes), at=(6,), grad_req={"x": "write", "at": "null"})
    rows = _odd(np.random.default_rng(1).normal(size=(6, classes)).astype(np.float32), kind if classes > 1 else "large")
    found = []
    for each in made:
        each.arg_dict["x"][:] = rows
        each.arg_dict["at"][:] = np.array([0, 2.7, classes - 1, classes + 1, -2, 1])
        each.forward(is_train=True)
        each.backward([mx.nd.array([[0.5], [1], [-2], [3], [0], [1]])])
        found.append((each.outputs[0].asnumpy(), each.grad_dict["x"].asnumpy()))
    assert ran(made[0])
    for ours, theirs in zip(*found, strict=True):  # of a row with NaN oneDNN writes zeros and infinities
        odd = np.isnan(rows).any(axis=1)
        assert np.isnan(ours[odd]).all()
        np.testing.assert_allclose(ours[~odd], theirs[~odd], 1e-5, 5e-6)


@pytest.mark.parametrize(("shape", "fused"), [((6, 50), True), ((2, 3, 50), True), ((6, 50, 2), False)])
def test_which_losses_of_labels_are_fused(shape: tuple[int, ...], fused: bool) -> None:
    """Gluon's loss along the last axis, not along another one."""
    symbol = mx.gluon.loss.SoftmaxCrossEntropyLoss(axis=-1 if fused else 1)(mx.sym.Variable("x"), mx.sym.Variable("y"))
    labels = shape[:-1] if fused else (6, 2)
    types = {"x": TensorType(f32, shape), "y": TensorType(f32, labels)}
    made = compile_step(symbol.tojson(), types, ["x"])
    listings = [program.listing() for program in made.programs]
    assert ["log_softmax_pick" in text for text in listings] == [fused, fused]


@pytest.mark.parametrize("form", ["probabilities are a result", "another axis", "sequences", "of logits", "dense",
                                  "smoothed", "weighted", "of functions", "cross entropy"])
def test_losses_beside_those_of_labels(form: str) -> None:
    """Losses that are not fused, and such that are in another form."""
    x, label, labels = (mx.sym.Variable(name) for name in ("x", "label", "other_label"))
    logs, loss = mx.sym.log_softmax(x), mx.gluon.loss.SoftmaxCrossEntropyLoss
    symbol = {
        "probabilities are a result": lambda: mx.sym.Group([mx.sym.pick(logs, label), logs]),
        "another axis": lambda: loss(axis=1)(mx.sym.reshape(x, (4, 5, 2, 3)), labels),
        "sequences": lambda: loss()(mx.sym.reshape(x, (4, 6, 5)), mx.sym.reshape(labels, (4, 6))),
        "of logits": lambda: loss(from_logits=True)(logs, label),
        "dense": lambda: loss(sparse_label=False)(x, mx.sym.one_hot(label, 30)),
        "smoothed": lambda: loss(sparse_label=False)(x, mx.sym.one_hot(label, 30, on_value=0.9, off_value=0.1 / 29)),
        "weighted": lambda: loss(weight=0.3, batch_axis=0)(x, label, mx.sym.reshape(label, (4, 1)) + 1),
        "of functions": lambda: mx.sym.sum(mx.sym.pick(logs, label)) * 0.1,
        "cross entropy": lambda: mx.sym.softmax_cross_entropy(x, label),
    }[form]()
    shapes = {"x": (4, 30), "label": (4,), "other_label": (4, 2, 3)}
    made = both(symbol, **{name: shapes[name] for name in symbol.list_arguments()},
                grad_req={name: "write" if name == "x" else "null" for name in symbol.list_arguments()})
    for each in made:
        each.forward(is_train=True)
        each.backward([mx.nd.ones(output.shape) * 0.5 for output in each.outputs])
    assert ran(made[0])
    same_state(*made)
