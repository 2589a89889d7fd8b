"""Optimizers' updates that are compiled (NGRAPH_TRAINING=1), against MXNet's own."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet_helpers import backend, mx, needs_library

from ngraph_mxnet.plugin.binding import fallbacks, updates

pytestmark = needs_library

SHAPES = ((8, 3, 3, 3), (10,), (1,), (33, 70))
OPTIMIZERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sgd", {}), ("sgd", {"momentum": 0.9}), ("nag", {}), ("nag", {"momentum": 0.9}), ("adam", {}), ("rmsprop", {}),
    ("rmsprop", {"centered": True}), ("adagrad", {}), ("ftrl", {}), ("lamb", {}),
)


@contextmanager
def compiled(yes: bool) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGRAPH_TRAINING", str(int(yes)))
        patch.setenv("MXNET_SUBGRAPH_BACKEND", "NGRAPH")
        yield


@contextmanager
def all_compiled(count: int) -> Iterator[None]:
    """So many updates run within, all of them compiled."""
    before = updates.ran()
    with compiled(True):
        yield
    assert updates.ran() - before == count


def parameters(shapes: Sequence[tuple[int, ...]] = SHAPES, dtype: str = "float32") -> list[mx.gluon.Parameter]:
    rng = np.random.default_rng(0)
    made = []
    for number, shape in enumerate(shapes):
        made.append(mx.gluon.Parameter(f"p{number}_{'bias' if number == 1 else 'weight'}", shape=shape, dtype=dtype))
        made[-1].initialize(ctx=mx.cpu())
        made[-1].set_data(mx.nd.array(rng.normal(size=shape), dtype=dtype))
    return made


def new_gradients(trainer: mx.gluon.Trainer, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for parameter in trainer._params:
        drawn = rng.normal(size=parameter.shape)
        if parameter.grad_req != "null":
            parameter.grad()[:] = drawn
            parameter.data()._fresh_grad = True


def step(trainer: mx.gluon.Trainer, seed: int, batch: int = 4) -> None:
    new_gradients(trainer, seed)
    trainer.step(batch)


def trainer_of(name: str, options: dict[str, Any], shapes: Sequence[tuple[int, ...]] = SHAPES,
               **others: Any) -> mx.gluon.Trainer:
    return mx.gluon.Trainer(parameters(shapes), name, dict(options), **others)


def leaves(trainer: mx.gluon.Trainer) -> list[np.ndarray]:
    """Weights and states."""
    states = [leaf for _, state in sorted(trainer._updaters[0].states.items())
              for leaf in (state if isinstance(state, tuple) else (state,)) if leaf is not None]
    return [array.asnumpy() for array in (*(p.data() for p in trainer._params), *states)]


def counts(trainer: mx.gluon.Trainer) -> tuple[int, dict[int, int]]:
    return trainer.optimizer.num_update, dict(trainer.optimizer._index_update_count)


def same(ours: mx.gluon.Trainer, theirs: mx.gluon.Trainer, *, rtol: float = 2e-6) -> None:
    mine, other = leaves(ours), leaves(theirs)
    assert len(mine) == len(other)
    for one, two in zip(mine, other, strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=rtol)
    assert counts(ours) == counts(theirs)


def both(make: Callable[[], mx.gluon.Trainer], use: Callable[[mx.gluon.Trainer, int], None] = step,
         steps: int = 5) -> tuple[mx.gluon.Trainer, mx.gluon.Trainer]:
    """Ours and MXNet's after these steps."""
    ours, theirs = make(), make()
    with all_compiled(steps):
        for number in range(steps):
            use(ours, number)
    with compiled(False):
        for number in range(steps):
            use(theirs, number)
    return ours, theirs


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_every_optimizer_gives_what_mxnet_gives(name: str, options: dict[str, Any], clip: float | None) -> None:
    ours, theirs = both(lambda: trainer_of(name, {**options, "wd": 0.1, "clip_gradient": clip}))
    same(ours, theirs)
    if name in ("sgd", "nag", "rmsprop", "adagrad", "ftrl"):
        assert all(map(np.array_equal, leaves(ours), leaves(theirs)))


@pytest.mark.parametrize("backend", [None, "MKLDNN"])
def test_without_our_backend_in_the_environment_mxnet_updates(backend: str | None) -> None:
    trainer = trainer_of("sgd", {})
    with all_compiled(0), pytest.MonkeyPatch.context() as patch:
        if backend is None:
            patch.delenv("MXNET_SUBGRAPH_BACKEND")
        else:
            patch.setenv("MXNET_SUBGRAPH_BACKEND", backend)
        step(trainer, 0)


def settings_of(name: str, draw: Callable[..., Any]) -> dict[str, Any]:
    share = st.sampled_from([0.0, 0.5, 0.9, 0.99])
    made: dict[str, Any] = {"learning_rate": draw(st.sampled_from([1e-3, 0.1, 1.0])),
                            "wd": draw(st.sampled_from([0.0, 1e-4, 0.3])),
                            "clip_gradient": draw(st.sampled_from([None, 0.0, 0.1, 5.0])),
                            "begin_num_update": draw(st.sampled_from([0, 3]))}
    if name in ("sgd", "nag"):
        made["momentum"] = draw(share)
    if name in ("adam", "lamb"):
        made |= {"beta1": draw(share), "beta2": draw(share), "epsilon": draw(st.sampled_from([1e-8, 1e-3]))}
    if name == "lamb":
        made |= {"bias_correction": draw(st.booleans()), "lower_bound": draw(st.sampled_from([None, 0.5])),
                 "upper_bound": draw(st.sampled_from([None, 3.0]))}
    if name == "rmsprop":
        made |= {"gamma1": draw(st.sampled_from([0.5, 0.9])), "gamma2": draw(share), "centered": draw(st.booleans()),
                 "clip_weights": draw(st.sampled_from([None, 0.5])), "epsilon": draw(st.sampled_from([1e-4, 1e-3]))}
    if name == "ftrl":
        made |= {"lamda1": draw(st.sampled_from([0.0, 0.01, 0.3])), "beta": draw(st.sampled_from([0.5, 1.0]))}
    return made


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_settings_and_shapes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["sgd", "nag", "adam", "rmsprop", "adagrad", "ftrl", "lamb"]))
    options = settings_of(name, data.draw)
    sides = st.integers(1, 9)
    shapes = data.draw(st.lists(st.lists(sides, min_size=1, max_size=4).map(tuple), min_size=1, max_size=6))
    ours, theirs = both(lambda: trainer_of(name, options, shapes), steps=3)
    same(ours, theirs, rtol=2e-5)


def test_nothing_is_compiled_anew_when_numbers_change(heard: Callable[[str], list[str]]) -> None:
    made = heard("compiled graph ")

    def use(trainer: mx.gluon.Trainer, number: int) -> None:
        trainer.set_learning_rate(0.1 / (number + 1))
        trainer.optimizer.wd = 0.01 * number
        trainer.optimizer.momentum = 0.5 + 0.1 * number
        trainer.optimizer.clip_gradient = 0.1 + number
        trainer._params[0].lr_mult, trainer._params[1].wd_mult = number, 2.0 * number
        step(trainer, number, batch=number + 1)

    same(*both(lambda: trainer_of("nag", {"momentum": 0.9, "clip_gradient": 1.0}), use))
    assert len(made) == 1


@pytest.mark.parametrize("name", ["sgd", "adam", "lamb"])
def test_schedules_see_the_counts_that_mxnet_shows_them(name: str) -> None:
    asked: list[list[int]] = []

    class Schedule(mx.lr_scheduler.FactorScheduler):
        def __call__(self, num_update: int) -> float:
            asked[-1].append(num_update)
            return super().__call__(num_update)

    def make() -> mx.gluon.Trainer:
        asked.append([])
        return trainer_of(name, {"lr_scheduler": Schedule(step=2, factor=0.5, base_lr=0.1)}, SHAPES * 2)

    def use(trainer: mx.gluon.Trainer, number: int) -> None:
        asked.append([])
        trainer._params[0].grad_req = "write" if number > 1 else "null"  # it lags behind the others
        step(trainer, number)

    ours, theirs = both(make, use, steps=4)
    same(ours, theirs)
    halves = [call for call in asked if call]
    assert [set(call) for call in halves[:4]] == [set(call) for call in halves[4:]]


def test_grad_req_add_and_parameters_frozen_and_freed_midway() -> None:
    def use(trainer: mx.gluon.Trainer, number: int) -> None:
        requests = ["write", "add", "null" if number in (1, 3) else "write", "write"]
        for parameter, request in zip(trainer._params, requests, strict=True):
            if parameter.grad_req != request:
                parameter.grad_req = request
        step(trainer, number)

    same(*both(lambda: trainer_of("adam", {}), use))


def test_stale_gradients_are_left_out_or_refused_as_in_mxnet() -> None:
    def use(trainer: mx.gluon.Trainer, number: int) -> None:
        new_gradients(trainer, number)
        trainer._params[number % 3].data()._fresh_grad = False
        trainer.step(4, ignore_stale_grad=True)

    ours, theirs = both(lambda: trainer_of("sgd", {"momentum": 0.9}), use)
    same(ours, theirs)
    with compiled(True), pytest.raises(UserWarning, match="has not been updated by backward since last `step`"):
        ours.step(4)
    same(ours, theirs)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_saved_states_go_from_one_to_the_other(name: str, options: dict[str, Any], first: bool,
                                               tmp_path: Path) -> None:
    """Half of the steps compiled, half of them MXNet's, with a file in between."""
    made = trainer_of(name, options)
    with compiled(first):
        for number in range(3):
            step(made, number)
        made.save_states(str(tmp_path / "states"))
    later = trainer_of(name, options)
    for one, two in zip(made._params, later._params, strict=True):
        two.set_data(one.data())
    with compiled(not first):
        later.load_states(str(tmp_path / "states"))
        for number in range(3, 6):
            step(later, number)
    theirs = trainer_of(name, options)
    with compiled(False):
        for number in range(6):
            step(theirs, number)
    same(later, theirs)


def test_states_that_are_replaced_are_the_ones_that_count() -> None:
    def use(trainer: mx.gluon.Trainer, number: int) -> None:
        if number == 2:
            trainer._updaters[0].states[0] = mx.nd.ones(SHAPES[0])
        step(trainer, number)

    same(*both(lambda: trainer_of("sgd", {"momentum": 0.9}), use))


def test_weights_that_are_set_or_made_anew_are_the_ones_that_count() -> None:
    def use(trainer: mx.gluon.Trainer, number: int) -> None:
        if number == 2:
            trainer._params[0].set_data(mx.nd.ones(SHAPES[0]))
        if number == 3:
            trainer._params[1].reset_ctx([mx.cpu(0)])
            trainer._params[2]._load_init(mx.nd.ones(SHAPES[2]), mx.cpu())
        step(trainer, number)

    same(*both(lambda: trainer_of("adam", {}), use))


def test_copies_and_pickles_are_trained_on() -> None:
    ours, theirs = both(lambda: trainer_of("adam", {}), steps=2)
    for each, yes in ((ours, True), (theirs, False)):
        updater = each._updaters[0]
        with compiled(yes):
            copied = pickle.loads(pickle.dumps(updater))
            copied.optimizer.param_dict = updater.optimizer.param_dict
            deep = copy.deepcopy(updater.states)
            each._updaters[0], each._optimizer = copied, copied.optimizer
            step(each, 7)
            assert all(map(np.array_equal, (s.asnumpy() for s in deep[0]), (s.asnumpy() for s in updater.states[0])))
    same(ours, theirs)


def test_two_contexts_have_counts_of_their_own() -> None:
    def make() -> mx.gluon.Trainer:
        made = mx.gluon.Parameter("p", shape=(5, 4))
        made.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
        made.set_data(mx.nd.ones((5, 4)))
        return mx.gluon.Trainer([made], "adam", update_on_kvstore=False)

    def use(trainer: mx.gluon.Trainer, number: int) -> None:
        for ctx in (mx.cpu(0), mx.cpu(1)):
            trainer._params[0].grad(ctx)[:] = number + 0.5
            trainer._params[0].data(ctx)._fresh_grad = True
        trainer.step(1)

    before = updates.ran()
    ours, theirs = make(), make()
    for each, yes in ((ours, True), (theirs, False)):
        with compiled(yes):
            for number in range(3):
                use(each, number)
    assert updates.ran() - before == 6
    for ctx in (mx.cpu(0), mx.cpu(1)):
        np.testing.assert_allclose(ours._params[0].data(ctx).asnumpy(), theirs._params[0].data(ctx).asnumpy(), 1e-6)


def module_of(kvstore: Any, name: str = "sgd") -> mx.mod.Module:
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="one")
    x = mx.sym.FullyConnected(mx.sym.Activation(x, act_type="relu"), num_hidden=4, name="two")
    made = mx.mod.Module(mx.sym.SoftmaxOutput(x, name="softmax"))
    made.bind([("data", (8, 12))], [("softmax_label", (8,))])
    mx.random.seed(3)
    np.random.seed(3)
    made.init_params(mx.init.Xavier())
    made.init_optimizer(kvstore=kvstore, optimizer=name, optimizer_params={"learning_rate": 0.1, "wd": 0.01})
    return made


def train_module(made: mx.mod.Module, steps: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    for _ in range(steps):
        batch = mx.io.DataBatch([mx.nd.array(rng.normal(size=(8, 12)))], [mx.nd.array(rng.integers(0, 4, 8))])
        made.forward_backward(batch)
        made.update()
    return {name: array.asnumpy() for name, array in made.get_params()[0].items()}


@pytest.mark.parametrize("kvstore", ["local", "device", None])
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_modules(kvstore: str | None, name: str, tmp_path: Path) -> None:
    with backend("NGRAPH"), all_compiled(4):
        ours = module_of(kvstore, name)
        train_module(ours, 3)
        ours.save_optimizer_states(str(tmp_path / "states"))
        ours.load_optimizer_states(str(tmp_path / "states"))
        mine = train_module(ours, 1)
    with backend(None), compiled(False):
        module = module_of(kvstore, name)
        train_module(module, 3)
        theirs = train_module(module, 1)
    for key, value in theirs.items():
        np.testing.assert_allclose(mine[key], value, rtol=1e-4, atol=1e-5)


def reasons() -> list[str]:
    return [f"{refusal.what}: {refusal.reason}" for refusal in fallbacks.log.counts()]


@pytest.mark.parametrize("on_kvstore", [True, False])
def test_a_kvstore_that_updates_does_it_itself(on_kvstore: bool) -> None:
    def make() -> mx.gluon.Trainer:
        return trainer_of("sgd", {"momentum": 0.9}, kvstore=mx.kv.create("local"), update_on_kvstore=on_kvstore)

    before, ours, theirs = updates.ran(), make(), make()
    for each, yes in ((ours, True), (theirs, False)):
        with compiled(yes):
            for number in range(3):
                step(each, number)
    assert updates.ran() - before == (0 if on_kvstore else 3)
    same(ours, theirs)
    if on_kvstore:
        assert "the update of SGD: a kvstore, or the program itself, updates parameter by parameter" in reasons()


class MySGD(mx.optimizer.SGD):
    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        weight[:] -= grad


@pytest.mark.parametrize(("make", "reason"), [
    (lambda: trainer_of("signum", {}), "the optimizer Signum, MXNet's, has no compiled update"),
    (lambda: mx.gluon.Trainer(parameters(), MySGD()), "the optimizer MySGD, no class of MXNet's, has no compiled"),
    (lambda: mx.gluon.Trainer(parameters(dtype="float16"), "sgd", {"multi_precision": True, "momentum": 0.9}),
     "parameter 0 has an array that is float16, only dense float32 ones are updated compiled"),
    (lambda: mx.gluon.Trainer(parameters(dtype="float64"), "adam"), "parameter 0 has an array that is float64"),
    (lambda: trainer_of("sgd", {"momentum": -0.5}), "momentum is -0.5"),
    (lambda: trainer_of("sgd", {"clip_gradient": -0.5}), "clip_gradient is -0.5"),
])
def test_what_is_mxnets_says_why_once(make: Callable[[], mx.gluon.Trainer], reason: str,
                                      caplog: pytest.LogCaptureFixture) -> None:
    fallbacks.log.__init__()  # type: ignore[misc]
    before, ours, theirs = updates.ran(), make(), make()
    for each, yes in ((ours, True), (theirs, False)):
        with compiled(yes):
            for number in range(3):
                step(each, number)
    same(ours, theirs)
    assert updates.ran() == before
    assert [refusal.reason for refusal in fallbacks.log.counts()][-1].startswith(reason)
    assert sum(reason in record.getMessage() for record in caplog.records) == 1


def test_methods_that_were_replaced_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    made, called = trainer_of("sgd", {}), []
    with compiled(True):
        step(made, 0)
        stock = made.optimizer._get_lrs
        made.optimizer._get_lrs = lambda indices: called.append(indices) or stock(indices)
        before = updates.ran()
        step(made, 1)
        assert called and updates.ran() == before
        del made.optimizer._get_lrs
        monkeypatch.setattr(mx.optimizer.SGD, "update", lambda self, *args: None)
        step(made, 2)
    assert updates.ran() == before


def test_sparse_gradients_are_mxnets() -> None:
    made = mx.gluon.Parameter("p", shape=(6, 2), grad_stype="row_sparse")
    made.initialize()
    before = updates.ran()
    with compiled(True):
        trainer = mx.gluon.Trainer([made], "sgd")
        with mx.autograd.record():
            loss = mx.nd.Embedding(mx.nd.array([1, 3]), made.data(), 6, 2, sparse_grad=True).sum()
        loss.backward()
        trainer.step(1)
        mx.nd.waitall()
    assert updates.ran() == before


def test_errors_are_mxnets_and_count_nothing_twice() -> None:
    def failing(num_update: int) -> float:
        if num_update == 2:
            raise KeyError("no rate")
        return 0.1

    found = []
    for yes in (True, False):
        with compiled(yes):
            made = trainer_of("sgd", {})
            made.optimizer.lr_scheduler = failing
            step(made, 0)
            with pytest.raises(KeyError, match="no rate"):
                step(made, 1)
            found.append(counts(made))
    assert found[0] == found[1]


def test_an_array_that_has_failed_fails_the_update_and_what_waits_for_it() -> None:
    made = trainer_of("sgd", {"momentum": 0.9})
    with compiled(True):
        step(made, 0)
        new_gradients(made, 1)
        wrong = mx.nd.random.normal(0, -1, shape=SHAPES[1])
        mx.nd.elemwise_add(wrong, wrong, out=made._params[1].grad())
        made.step(4)
        with pytest.raises(mx.MXNetError):
            made._params[0].data().wait_to_read()


def test_the_profiler_sees_mxnets_own(tmp_path: Path) -> None:
    made, theirs = trainer_of("adam", {}), trainer_of("adam", {})
    before = updates.ran()
    with compiled(True):
        step(made, 0)
        mx.profiler.set_config(filename=str(tmp_path / "profile.json"))
        mx.profiler.set_state("run")
        try:
            step(made, 1)
            mx.nd.waitall()
        finally:
            mx.profiler.set_state("stop")
        step(made, 2)
    assert updates.ran() - before == 2
    with compiled(False):
        for number in range(3):
            step(theirs, number)
    same(made, theirs)


def hybrid_net() -> mx.gluon.nn.HybridSequential:
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(16, 3, padding=1, in_channels=3), mx.gluon.nn.Activation("relu"),
            mx.gluon.nn.Flatten(), mx.gluon.nn.Dense(4, in_units=16 * 36))
    mx.random.seed(1)
    net.initialize(mx.init.Xavier())
    return net


def test_inference_right_after_an_update_sees_the_new_weights() -> None:
    """A compiled block prepares weights once; every update must be seen by the next call, many times."""
    net, plain = hybrid_net(), hybrid_net()
    for one, two in zip(net.collect_params().values(), plain.collect_params().values(), strict=True):
        two.set_data(one.data())
    net.hybridize(backend="NGRAPH", static_alloc=True)
    x = mx.nd.random.uniform(shape=(2, 3, 6, 6))
    pairs = [(each, mx.gluon.Trainer(each.collect_params(), "sgd", {"learning_rate": 0.05, "momentum": 0.9}))
             for each in (net, plain)]
    with all_compiled(60):
        for number in range(30):
            outputs = []
            for each, trainer in pairs:
                new_gradients(trainer, number)
                trainer.step(4)
                outputs.append(each(x))
            np.testing.assert_allclose(outputs[0].asnumpy(), outputs[1].asnumpy(), rtol=1e-3, atol=1e-3)


def test_an_executor_sees_the_new_weights() -> None:
    with backend("NGRAPH"), all_compiled(30):
        made = module_of(None)
        executor = made._exec_group.execs[0]
        x = mx.nd.random.uniform(shape=(8, 12))
        for _ in range(30):
            train_module(made, 1)
            found = executor.forward(is_train=False, data=x)[0].asnumpy()
            args = {name: array.asnumpy() for name, array in executor.arg_dict.items()}
            hidden = np.maximum(args["data"] @ args["one_weight"].T + args["one_bias"], 0)
            scores = hidden @ args["two_weight"].T + args["two_bias"]
            power = np.exp(scores - scores.max(axis=1, keepdims=True))
            np.testing.assert_allclose(found, power / power.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("behind", [True, False])
def test_weights_that_onednn_has_laid_out_in_blocks(behind: bool) -> None:
    """As MXNet's convolution leaves them at inference; the update comes behind it, or when it is over."""
    nets = [mx.gluon.nn.Conv2D(32, 3, in_channels=32) for _ in range(2)]
    for net in nets:
        net.initialize()
    for one, two in zip(*(net.collect_params().values() for net in nets), strict=True):
        two.set_data(one.data())
    x = mx.nd.random.uniform(shape=(8, 32, 40, 40))
    trainers = [mx.gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9}) for net in nets]
    for number in range(10):
        for net, trainer, yes in zip(nets, trainers, (True, False), strict=True):
            with compiled(yes):
                new_gradients(trainer, number)
                net(x)
                if not behind:
                    mx.nd.waitall()
                trainer.step(1)
    for one, two in zip(*(net.collect_params().values() for net in nets), strict=True):
        np.testing.assert_allclose(one.data().asnumpy(), two.data().asnumpy(), rtol=1e-6, atol=1e-6)


def test_operators_that_the_engine_has_gathered_come_first() -> None:
    def use(trainer: mx.gluon.Trainer, number: int) -> None:
        new_gradients(trainer, number)
        with mx.engine.bulk(50):
            for parameter in trainer._params:
                for _ in range(3):
                    parameter.grad()[:] *= 1.5
                parameter.data()[:] += 0.25
            trainer.step(4)
            for parameter in trainer._params:
                parameter.data()[:] *= 0.5

    same(*both(lambda: trainer_of("sgd", {"momentum": 0.9}), use))


def test_threads_train_models_of_their_own() -> None:
    found: dict[int, mx.gluon.Trainer] = {}

    def train(number: int) -> None:
        made = trainer_of("adam", {"learning_rate": 0.01 * (number + 1)})
        for seed in range(20):
            step(made, seed)
        mx.nd.waitall()
        found[number] = made

    before = updates.ran()
    with compiled(True):
        threads = [threading.Thread(target=train, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert updates.ran() - before >= 40  # the count is not exact where threads meet
    for number in range(4):
        theirs = trainer_of("adam", {"learning_rate": 0.01 * (number + 1)})
        with compiled(False):
            for seed in range(20):
                step(theirs, seed)
        same(found[number], theirs)


def test_sets_of_parameters_without_end_are_not_compiled_for() -> None:
    ours, theirs = (trainer_of("sgd", {"momentum": 0.9}, [(2,)] * 6) for _ in range(2))
    before = updates.ran()
    for each, yes in ((ours, True), (theirs, False)):
        with compiled(yes):
            for number in range(updates.MOST_CHANGES + 3):
                new_gradients(each, number)
                for bit, parameter in enumerate(each._params):
                    parameter.data()._fresh_grad = bool(number >> bit & 1)
                each.step(1, ignore_stale_grad=True)
    assert updates.ran() - before == updates.MOST_CHANGES
    same(ours, theirs)


def test_mxnet_updates_when_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_TRAINING", "0")
    before = updates.ran()
    step(trainer_of("sgd", {}), 0)
    assert updates.ran() == before


def with_an_embedding(name: str, options: dict[str, Any]) -> mx.gluon.Trainer:
    """Of dense parameters and, among them, one whose gradient is row_sparse."""
    made = parameters()
    embedding = mx.gluon.Parameter("embedding_weight", shape=(20, 6), grad_stype="row_sparse")
    embedding.initialize()
    embedding.set_data(mx.nd.array(np.random.default_rng(1).normal(size=(20, 6))))
    made.insert(1, embedding)
    return mx.gluon.Trainer(made, name, {**options, "lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5)})


def mixed_step(trainer: mx.gluon.Trainer, seed: int, stale: Sequence[int] = ()) -> None:
    """With some rows of the embedding; parameters of the numbers `stale` have had no backward pass."""
    rng = np.random.default_rng(seed)
    for number, parameter in enumerate(trainer._params):
        if parameter._grad_stype == "default":
            parameter.grad()[:] = rng.normal(size=parameter.shape)
        else:
            rows = np.sort(rng.choice(20, 4, replace=False))
            mx.nd.sparse.row_sparse_array((rng.normal(size=(4, 6)), rows), shape=(20, 6)).copyto(parameter.grad())
        parameter.data()._fresh_grad = number not in stale
    trainer.step(4, ignore_stale_grad=True)


@pytest.mark.parametrize(("name", "options"), [
    ("sgd", {"wd": 0.01}), ("sgd", {"momentum": 0.9}), ("adam", {}), ("adagrad", {}), ("ftrl", {})])
def test_dense_ones_beside_sparse_ones(name: str, options: dict[str, Any]) -> None:
    same(*both(lambda: with_an_embedding(name, options), mixed_step))


def test_dense_ones_beside_sparse_ones_of_other_counts() -> None:
    ours, theirs = with_an_embedding("sgd", {}), with_an_embedding("sgd", {})
    before = updates.ran()
    for each, yes in ((ours, True), (theirs, False)):
        with compiled(yes):
            for number in range(6):
                mixed_step(each, number, stale=[1] if number == 2 else [])
    same(ours, theirs)
    assert updates.ran() - before == 3  # until the embedding had one update less
