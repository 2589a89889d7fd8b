"""`bind`, `simple_bind` and the executors they return, with the environment variable set."""

from __future__ import annotations

import ctypes
import gc
import logging
import threading
from typing import Any

import numpy as np
import pytest
from mxnet_helpers import (
    CONV_SHAPE,
    backend,
    bound,
    classifier,
    close,
    conv_net,
    environment,
    fill,
    is_partitioned,
    mx,
    needs_library,
)

from mxnet import autograd, gluon  # isort: skip  # the helpers make it importable
from ngraph_mxnet.plugin.binding import fallbacks

pytestmark = needs_library


@pytest.mark.parametrize("value", ["NGRAPH", "ngraph", "NGraph"])
def test_simple_bind_partitions_in_any_case_of_letters(value):
    ours, stock = bound(conv_net(), value, data=CONV_SHAPE), bound(conv_net(), "NONE", data=CONV_SHAPE)
    assert is_partitioned(ours)
    assert not is_partitioned(stock)
    close(ours.forward()[0], stock.forward()[0])
    assert list(ours.arg_dict) == list(stock.arg_dict)
    assert list(ours.output_dict) == list(stock.output_dict) == ["dense_output"]


@pytest.mark.parametrize("value", [None, "", "NONE", "MKLDNN"])
def test_without_our_name_the_bind_is_stock(value):
    executor = bound(conv_net(), value, data=CONV_SHAPE)
    assert type(executor) is mx.executor.Executor


def test_the_variable_stays_as_the_user_wrote_it():
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_char_p
    with backend("nGraph"):
        conv_net().simple_bind(mx.cpu(), grad_req="null", data=CONV_SHAPE)
        assert libc.getenv(b"MXNET_SUBGRAPH_BACKEND") == b"nGraph"


def test_binds_move_nothing_in_the_c_environment():
    """Other threads' `getenv` walks over these pointers while we bind."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    first = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")

    def pointers() -> list[int]:
        found = [ctypes.addressof(first.contents)]
        while first[len(found) - 1] is not None:
            found.append(first[len(found) - 1])
        return found

    with backend("NGRAPH"):
        conv_net().simple_bind(mx.cpu(), grad_req="null", data=CONV_SHAPE)
        before, place = pointers(), libc.getenv(b"MXNET_SUBGRAPH_BACKEND")
        executor = conv_net().simple_bind(mx.cpu(), grad_req="null", data=CONV_SHAPE)
        executor.forward(is_train=True)
        conv_net().simple_bind(mx.cpu(), data=CONV_SHAPE).forward()
        assert (pointers(), libc.getenv(b"MXNET_SUBGRAPH_BACKEND")) == (before, place)


def test_training_binds_print_nothing_of_their_own(capfd):
    for grad_req in ("null", "write"):
        executor = bound(conv_net(), "NGRAPH", grad_req, data=CONV_SHAPE)
        executor.forward(is_train=True)
        executor.forward()
        executor.reshape(data=(1, *CONV_SHAPE[1:])).forward(is_train=True)
    assert "MXNET_SUBGRAPH_BACKEND=NONE is detected" not in capfd.readouterr().err


@pytest.mark.parametrize("as_dict", [True, False])
def test_bind_with_list_and_dict(as_dict):
    symbol = conv_net()
    stock = bound(symbol, "NONE", data=CONV_SHAPE)
    args = stock.arg_dict if as_dict else stock.arg_arrays
    aux = stock.aux_dict if as_dict else stock.aux_arrays
    with backend("NGRAPH"):
        ours = symbol.bind(mx.cpu(), args, aux_states=aux)
    assert ours.is_compiled, "without gradient arrays the default grad_req asks for none"
    close(ours.forward()[0], stock.forward()[0])


def test_eval():
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    with backend("NGRAPH"):
        out = (a + b).eval(mx.cpu(), a=mx.nd.ones((2, 3)), b=mx.nd.ones((2, 3)))
    close(out[0], np.full((2, 3), 2.0))


def test_names_do_not_leak_into_the_next_bind():
    """MXNet partitions by node names: those of the last graph must be forgotten."""
    first = mx.sym.Activation(mx.sym.Variable("data"), act_type="relu", name="same")
    second = mx.sym.softmax(mx.sym.Custom(mx.sym.Variable("data"), op_type="ngraph_test_twice", name="same"))
    bound(first, "NGRAPH", data=(2, 3))
    executor = bound(second, "NGRAPH", data=(2, 3))
    stock = bound(second, "NONE", data=(2, 3))
    close(executor.forward()[0], stock.forward()[0])


@mx.operator.register("ngraph_test_twice")
class TwiceProp(mx.operator.CustomOpProp):
    """An operator that no compiler knows."""

    def create_operator(self, ctx, shapes, dtypes):
        class Twice(mx.operator.CustomOp):
            def forward(self, is_train, req, in_data, out_data, aux):
                self.assign(out_data[0], req[0], in_data[0] * 2)

        return Twice()


def test_unsupported_graph_runs_natively_and_says_why(caplog):
    symbol = mx.sym.Custom(mx.sym.Variable("data"), op_type="ngraph_test_twice", name="twice")
    with caplog.at_level(logging.INFO, "ngraph_mxnet"):
        executor = bound(symbol, "NGRAPH", data=(2, 3))
    assert not is_partitioned(executor)
    close(executor.forward()[0], executor.arg_dict["data"] * 2)
    assert "MXNet runs twice_output: no region is supported" in caplog.text


def test_training_forward_of_an_inference_bind():
    """Dropout drops and batch norm uses the batch's statistics, as MXNet does without a backend."""
    symbol = conv_net(dropout=0.5)
    ours = bound(symbol, "NGRAPH", data=CONV_SHAPE)
    inference = ours.forward()[0].asnumpy()
    training = [ours.forward(is_train=True)[0].asnumpy() for _ in range(2)]
    assert np.abs(training[0] - inference).max() > 1e-3
    assert np.abs(training[0] - training[1]).max() > 1e-3
    stock = bound(conv_net(), "NONE", data=CONV_SHAPE)
    again = bound(conv_net(), "NGRAPH", data=CONV_SHAPE)
    close(again.forward(is_train=True)[0], stock.forward(is_train=True)[0])
    close(again.forward()[0], stock.forward()[0])


@pytest.mark.parametrize("grad_req", ["write", "add", {"conv_weight": "add", "dense_weight": "write"}])
def test_gradients_equal_native(grad_req):
    symbol = conv_net()
    pair = [bound(symbol, value, grad_req, data=CONV_SHAPE) for value in ("NGRAPH", "NONE")]
    for executor in pair:
        for _ in range(2):
            executor.forward(is_train=True)
            executor.backward(mx.nd.ones((2, 5)))
        # MXNet's operators read the mode when they run, not when they are pushed.
        mx.nd.waitall()
        executor.forward(is_train=False)
        mx.nd.waitall()
        executor.forward(is_train=True)
        executor.backward(mx.nd.ones((2, 5)))
    assert is_partitioned(pair[0])
    for name, grad in pair[1].grad_dict.items():
        if grad is not None:
            close(pair[0].grad_dict[name], grad, rtol=1e-3, atol=1e-3)
    for name, array in pair[1].aux_dict.items():
        close(pair[0].aux_dict[name], array)


def test_backward_after_an_inference_forward():
    pair = [bound(conv_net(), value, "write", data=CONV_SHAPE) for value in ("NGRAPH", "NONE")]
    for executor in pair:
        executor.forward(is_train=False)
        executor.backward(mx.nd.ones((2, 5)))
    for name in pair[1].grad_dict:
        close(pair[0].grad_dict[name], pair[1].grad_dict[name], rtol=1e-3, atol=1e-3)


def test_outputs_taken_before_the_first_forward_stay_live():
    ours, stock = (bound(conv_net(), value, "write", data=CONV_SHAPE) for value in ("NGRAPH", "NONE"))
    held, by_name = ours.outputs[0], ours.output_dict["dense_output"]
    expected = stock.forward()[0]
    ours.forward(is_train=False)
    close(held, expected)
    close(by_name, expected)
    ours.forward(is_train=True)
    close(held, stock.forward(is_train=True)[0])


@pytest.mark.parametrize("grad_req", ["null", "write"])
def test_reshape_down_and_up(grad_req):
    ours, stock = (bound(conv_net(), value, grad_req, data=CONV_SHAPE) for value in ("NGRAPH", "NONE"))
    for batch in (1, 2, 7, 1):
        shape = (batch, *CONV_SHAPE[1:])
        with backend("NGRAPH"):
            reshaped = ours.reshape(allow_up_sizing=True, data=shape)
        values = np.random.default_rng(batch).uniform(size=shape).astype(np.float32)
        expected = stock.reshape(allow_up_sizing=True, data=shape)
        close(reshaped.forward(data=mx.nd.array(values))[0], expected.forward(data=mx.nd.array(values))[0])
        assert is_partitioned(reshaped)
        reshaped.arg_dict["conv_bias"][:] += 0.25
        stock.arg_dict["conv_bias"][:] += 0.25
        close(ours.arg_dict["conv_bias"], stock.arg_dict["conv_bias"])
        close(ours.aux_dict["norm_moving_var"], stock.aux_dict["norm_moving_var"])


@pytest.mark.parametrize("grad_req", ["null", "write"])
def test_reshape_refuses_as_mxnet_does(grad_req):
    executor = bound(conv_net(), "NGRAPH", grad_req, data=CONV_SHAPE)
    with pytest.raises(mx.MXNetError, match="allow_up_sizing"):
        executor.reshape(data=(9, *CONV_SHAPE[1:]))
    with pytest.raises(mx.MXNetError, match="partial_shaping"):
        executor.reshape(data=(2, 3, 3, 3))
    close(executor.forward()[0], executor.forward()[0])


def test_reshape_with_a_change_of_unnamed_arguments():
    ours, stock = (bound(conv_net(), value, data=CONV_SHAPE) for value in ("NGRAPH", "NONE"))
    outs = [
        fill(executor.reshape(partial_shaping=True, allow_up_sizing=True, data=(2, 3, 8, 8))).forward()[0]
        for executor in (ours, stock)
    ]
    close(*outs)


def test_monitor_sees_every_operator(caplog):
    seen = []
    for grad_req in ("null", "write"):
        executor = bound(conv_net(), "NGRAPH", grad_req, data=CONV_SHAPE)
        expected = executor.forward()[0].asnumpy()
        with caplog.at_level(logging.INFO, "ngraph_mxnet"):
            executor.set_monitor_callback(lambda name, array: seen.append(name), monitor_all=True)
        close(executor.forward()[0], expected)
        assert any("total" in str(name) for name in seen)
        seen.clear()
        smaller = executor.reshape(data=(1, *CONV_SHAPE[1:]))
        smaller.forward()[0].wait_to_read()
        assert any("total" in str(name) for name in seen)
        seen.clear()
    assert "a monitor wants" in caplog.text


def test_changed_weights_change_the_next_result():
    ours, stock = (bound(conv_net(), value, data=CONV_SHAPE) for value in ("NGRAPH", "NONE"))
    before = ours.forward()[0].asnumpy()
    for executor in (ours, stock):
        executor.arg_dict["conv_weight"][:] = 0.5
    close(ours.forward()[0], stock.forward()[0])
    params = {name: array + 1 for name, array in stock.arg_dict.items() if name != "data"}
    for executor in (ours, stock):
        executor.copy_params_from(params, {name: array + 1 for name, array in stock.aux_dict.items()})
    close(ours.forward()[0], stock.forward()[0])
    assert np.abs(ours.forward()[0].asnumpy() - before).max() > 1e-2


@pytest.mark.parametrize("grad_req", ["null", "write"])
def test_copied_parameters_are_converted_checked_and_apart(grad_req):
    ours, stock = (bound(conv_net(), value, grad_req, data=CONV_SHAPE) for value in ("NGRAPH", "NONE"))
    params = {name: array.astype(dtype) * 2 for dtype, (name, array) in
              zip(["float64", "float16", "float32", "int32"] * 4, stock.arg_dict.items(), strict=False)}
    for executor in (ours, stock):
        executor.copy_params_from({**params, "extra": params["conv_bias"]}, allow_extra_params=True)
        executor.copy_params_from(executor.arg_dict, executor.aux_dict)  # onto themselves
    expected = stock.forward()[0].copy()
    close(ours.forward()[0], expected)
    for array in params.values():
        array[:] = 0
    close(ours.forward()[0], expected)
    for given in ({"extra": params["conv_bias"]}, {"conv_bias": mx.nd.ones(7)}):
        for executor in (ours, stock):
            with pytest.raises((ValueError, mx.base.MXNetError), match=r"extra|expected \[7\], got \[4\]"):
                executor.copy_params_from(given)
            with pytest.raises((ValueError, mx.base.MXNetError), match=r"extra|conv_bias"):
                executor.copy_params_from({}, given)


def test_wrong_input_shape_and_the_call_after_it():
    executor = bound(conv_net(), "NGRAPH", data=CONV_SHAPE)
    expected = executor.forward()[0].asnumpy()
    with pytest.raises(ValueError, match="Shape not match! Argument data"):
        executor.forward(data=mx.nd.ones((1, 3, 6, 6)))
    close(executor.forward()[0], expected)
    with backend("NGRAPH"), pytest.raises(RuntimeError, match="simple_bind error"):
        conv_net().simple_bind(mx.cpu(), grad_req="null", data=(2, 3), conv_weight=(1, 1))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64", "uint8"])
def test_other_element_types(dtype):
    symbol = mx.sym.elemwise_add(mx.sym.Variable("a"), mx.sym.Variable("b"))
    values = np.arange(6).reshape(2, 3).astype(dtype)
    for grad_req in ("null", "write"):
        with backend("NGRAPH"):
            executor = symbol.simple_bind(
                mx.cpu(), grad_req=grad_req, type_dict={"a": dtype, "b": dtype}, a=(2, 3), b=(2, 3)
            )
        out = executor.forward(a=mx.nd.array(values, dtype=dtype), b=mx.nd.array(values, dtype=dtype))[0]
        assert out.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(out.asnumpy(), values * 2)


def test_what_is_not_ours_is_bound_natively_with_a_reason(caplog):
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    with backend("NGRAPH"), caplog.at_level(logging.INFO, "ngraph_mxnet"):
        (a + b).simple_bind(mx.cpu(), grad_req="null", group2ctx={"dev": mx.cpu(1)}, a=(2, 3), b=(2, 3))
        sparse = mx.nd.ones((2, 3)).tostype("csr")
        out = mx.sym.sparse.dot(a, b).bind(mx.cpu(), [sparse, mx.nd.ones((3, 2))]).forward()[0]
    close(out, np.full((2, 2), 3.0))
    assert "group2ctx" in caplog.text
    assert "csr" in caplog.text


def test_a_node_that_json_does_not_describe_is_left_quietly(caplog):
    """`autograd.get_symbol` gives `_CachedOp` nodes without their graphs: what is remembered of one can't be loaded."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="relu"), gluon.nn.Dense(8))
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((4, 3))
    x.attach_grad()
    with autograd.record():
        y = mx.nd.exp(mx.nd.tanh(net(x) * 2))
    symbol = autograd.get_symbol(y)
    arrays = [x, *(parameter.data() for parameter in net.collect_params().values())]
    with backend("NGRAPH"), caplog.at_level(logging.INFO, "ngraph_mxnet"):
        for _ in range(2):
            close(symbol.bind(mx.cpu(), arrays, grad_req="null").forward()[0], y)
    assert "_CachedOp" in caplog.text
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_a_training_bind_compiles_nothing_until_inference_is_run():
    """`Module.bind` asks for `debug_str`, to log it."""
    with backend("NGRAPH"):
        module = mx.mod.Module(classifier())
        with fallbacks.partition_log.listening() as heard:
            module.bind([("data", (4, 6))], [("softmax_label", (4,))], for_training=True)
            executor = module._exec_group.execs[0]
            assert not is_partitioned(executor)
            assert "NGraphSubgraphOp" not in executor.get_optimized_symbol().tojson()
        assert not heard
        executor.forward(is_train=False)
        assert is_partitioned(executor)
        assert "NGraphSubgraphOp" in executor.get_optimized_symbol().tojson()


@pytest.mark.parametrize("grad_req", ["null", "write"])
def test_shared_executor_and_buffer(grad_req):
    """What is shared is what MXNet shares: parameters through the buffer, memory through the executor."""
    symbol = conv_net()
    outs = {}
    for value in ("NGRAPH", "NONE"):
        pool = {}
        with backend(value):
            large = symbol.simple_bind(mx.cpu(), grad_req=grad_req, shared_buffer=pool, data=(4, 3, 6, 6))
            small = symbol.simple_bind(
                mx.cpu(), grad_req=grad_req, shared_exec=large, shared_buffer=pool, data=CONV_SHAPE
            )
            fill(large)
            close(small.arg_dict["conv_bias"], large.arg_dict["conv_bias"])
            outs[value] = [fill(executor).forward()[0].asnumpy() for executor in (large, small, large)]
    for ours, stock in zip(outs["NGRAPH"], outs["NONE"], strict=True):
        close(ours, stock)


def test_five_executors_do_not_disturb_each_other():
    executors = [bound(conv_net(), "NGRAPH", data=(n, 3, 6, 6)) for n in range(1, 6)]
    expected = [bound(conv_net(), "NONE", data=(n, 3, 6, 6)).forward()[0].asnumpy() for n in range(1, 6)]
    for _ in range(3):
        outs = [executor.forward()[0] for executor in executors]
        for out, right in zip(outs, expected, strict=True):
            close(out, right)


def test_threads_bind_and_run_at_once():
    expected = bound(conv_net(), "NONE", data=CONV_SHAPE).forward()[0].asnumpy()
    failures = []

    def work(grad_req):
        try:
            for _ in range(4):
                executor = fill(conv_net().simple_bind(mx.cpu(), grad_req=grad_req, data=CONV_SHAPE))
                for _ in range(5):
                    close(executor.forward()[0], expected)
                assert is_partitioned(executor)
        except BaseException as error:
            failures.append(error)

    with backend("NGRAPH"):
        threads = [threading.Thread(target=work, args=(req,)) for req in ("null", "write") * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


class MallocInfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def allocated_kib() -> int:
    """What malloc has handed out; the resident size would also count the holes in the heap."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallinfo2"):
        pytest.skip("needs glibc 2.33")
    libc.mallinfo2.restype = MallocInfo
    gc.collect()
    mx.nd.waitall()
    info = libc.mallinfo2()
    return (info.uordblks + info.hblkhd) // 1024


@pytest.mark.parametrize("grad_req", ["null", "write"])
def test_no_leak_over_binds_and_reshapes(grad_req):
    """No array stays behind; a few KiB a bind do, in MXNet's `optimize_for`, which never frees its graphs."""
    symbol = mx.sym.Activation(mx.sym.Variable("data"), act_type="relu", name="relu")

    def once():
        executor = symbol.simple_bind(mx.cpu(), grad_req=grad_req, data=(64, 1024))  # 256 KiB each
        executor.forward(is_train=False)
        executor.forward(is_train=True)[0].wait_to_read()
        executor.reshape(data=(32, 1024)).forward()[0].wait_to_read()

    with backend("NGRAPH"):
        for _ in range(20):
            once()
        before = allocated_kib()
        for _ in range(100):
            once()
    assert (allocated_kib() - before) / 100 < 64


def test_explicit_optimize_for_in_any_case():
    symbol = conv_net()
    stock = bound(symbol, "NONE", data=CONV_SHAPE)
    partitioned = symbol.optimize_for("ngraph", dict(stock.arg_dict), dict(stock.aux_dict), mx.cpu())
    assert "NGraphSubgraphOp" in partitioned.tojson()
    executor = partitioned.bind(mx.cpu(), stock.arg_dict, aux_states=stock.aux_dict)
    close(executor.forward()[0], stock.forward()[0])


def test_corrupt_symbol_gives_mxnets_error():
    with backend("NGRAPH"), pytest.raises(mx.MXNetError):
        mx.sym.load_json('{"nodes": [{"op": "null"')
    assert environment.problem() is None


@pytest.mark.parametrize("value", ["NGRAPH", "NONE"])
def test_forward_takes_arrays_of_any_kind(value):
    """Like MXNet's own: the array is copied, converted where need be."""
    executor = bound(conv_net(), value, data=CONV_SHAPE)
    data = executor.arg_dict["data"]
    images = np.random.default_rng(0).standard_normal(CONV_SHAPE).astype(np.float32)
    for given in (mx.nd.array(images), images, mx.nd.array(images, dtype="float64"), mx.nd.array(images + 1)):
        executor.forward(is_train=False, data=given)
        np.testing.assert_array_equal(data.asnumpy(), np.asarray(given if given is images else given.asnumpy()))
    executor.forward(is_train=False, data=data)
    np.testing.assert_array_equal(data.asnumpy(), images + 1)
    with pytest.raises(ValueError, match="Shape not match"):
        executor.forward(is_train=False, data=mx.nd.zeros((1, *CONV_SHAPE[1:-1], CONV_SHAPE[-1] + 1)))
    with pytest.raises(TypeError, match="Unknown argument"):
        executor.forward(is_train=False, nothing=mx.nd.zeros(CONV_SHAPE))
    with pytest.raises(ValueError, match="only accept"):
        executor.forward(is_train=False, data=1.0)


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_what_replaces_a_method_on_mxnets_class_counts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For executors that are there, too, in training and inference; once for each call."""
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3), name="softmax")
    with backend("NGRAPH"):
        executor = fill(symbol.simple_bind(mx.cpu(), data=(2, 4)))
        executor.forward(is_train=True)
        executor.backward()
        known, calls = getattr(mx.executor.Executor, name), []

        def logged(self: mx.executor.Executor, *args: Any, **kwargs: Any) -> Any:
            calls.append((args, kwargs))
            return known(self, *args, **kwargs)

        monkeypatch.setattr(mx.executor.Executor, name, logged)
        for _ in range(2):
            executor.forward(is_train=True)
            executor.backward()
        assert len(calls) == 2
        count = executor.training.ran
        executor.forward()
        assert len(calls) == 2 + (name == "forward")
        monkeypatch.undo()
        executor.forward(is_train=True)
        assert len(calls) == 2 + (name == "forward") and executor.training.ran and count
