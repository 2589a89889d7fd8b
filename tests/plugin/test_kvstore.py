"""`dist_sync_ngraph`: several processes train as one does with all of their data."""

from __future__ import annotations

from pathlib import Path

import jobs
import numpy as np
import pytest
from mxnet_helpers import needs_library

pytestmark = [needs_library, pytest.mark.usefixtures("mpi")]


@pytest.fixture(scope="module")
def mpi() -> None:
    jobs.needs_mpi()


GLUON = """
kv = mx.kv.create("dist_sync_ngraph")
steps, batch, ranks = 12, 8, kv.num_workers
mx.random.seed(1 + kv.rank)  # other weights, until rank 0's are sent
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Conv2D(8, 3, activation="relu", in_channels=3), gluon.nn.MaxPool2D(),
        gluon.nn.Dense(64, activation="relu", in_units=8 * 7 * 7), gluon.nn.Dense(10, in_units=64))
mx.random.seed(1 + kv.rank)
net.initialize(mx.init.Xavier())
if HYBRID:
    net.hybridize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, kvstore=kv, **TRAINER)
lossf = gluon.loss.SoftmaxCrossEntropyLoss()
rng = np.random.default_rng(0)
images = rng.standard_normal((steps, batch, 3, 16, 16)).astype("f")
labels = rng.integers(0, 10, (steps, batch))
losses = []
for x, y in zip(images, labels):
    mine = slice(kv.rank * batch // ranks, (kv.rank + 1) * batch // ranks)
    with autograd.record():
        loss = lossf(net(mx.nd.array(x[mine])), mx.nd.array(y[mine]))
    loss.backward()
    BETWEEN
    trainer.step(batch)
    losses.append(float(loss.sum().asscalar()))
weights = [p.data().asnumpy().astype(float).sum() for p in net.collect_params().values()]
tell(losses=losses, weights=weights)
"""


def gluon(folder: Path, ranks: int, *, hybrid: bool = True, trainer: str = "{}", between: str = "pass",
          **environment: str) -> tuple[list[float], list[float]]:
    """The losses of all together, and sums of the weights at the end, which are the same in all."""
    script = f"HYBRID, TRAINER = {hybrid}, {trainer}\n" + GLUON.replace("BETWEEN", between)
    told = jobs.job(folder, script, ranks, **environment)
    assert all(each["weights"] == told[0]["weights"] for each in told)
    return np.sum([each["losses"] for each in told], axis=0).tolist(), told[0]["weights"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return gluon(tmp_path_factory.mktemp("alone"), 1)[0]


@pytest.mark.parametrize("way", [
    {},
    {"NGRAPH_KVSTORE_OVERLAP": "0"},
    {"NGRAPH_KVSTORE_SHARED_MEMORY": "0"},
    {"NGRAPH_TRAINING": "0"},
], ids=lambda way: " ".join(f"{k}={v}" for k, v in way.items()) or "default")
def test_two_ranks_give_what_one_does(tmp_path: Path, alone: list[float], way: dict[str, str]):
    losses, _ = gluon(tmp_path, 2, **way)
    np.testing.assert_allclose(losses, alone, rtol=1e-5)


@pytest.mark.slow
def test_blocks_that_are_not_hybridized(tmp_path: Path, alone: list[float]):
    np.testing.assert_allclose(gluon(tmp_path, 2, hybrid=False)[0], alone, rtol=1e-5)


def test_the_script_may_update_itself(tmp_path: Path, alone: list[float]):
    losses, _ = gluon(tmp_path, 2, trainer="{'update_on_kvstore': False}")
    np.testing.assert_allclose(losses, alone, rtol=1e-5)


def test_bf16_between_hosts_is_near(tmp_path: Path, alone: list[float]):
    losses, _ = gluon(tmp_path, 2, NGRAPH_KVSTORE_SHARED_MEMORY="0", NGRAPH_KVSTORE_WIRE="bf16")
    np.testing.assert_allclose(losses, alone, rtol=2e-2)
    assert losses != alone


@pytest.mark.slow
@pytest.mark.parametrize("between", [
    "net[3].weight.grad()[:] *= 1 + kv.rank",
    "[p.grad().wait_to_read() for p in net.collect_params().values()]; net[0].weight.grad()[:] += 1",
])
def test_gradients_may_be_changed_behind_the_backward_pass(tmp_path: Path, between: str):
    """Whether their sums have begun to be made or not."""
    assert gluon(tmp_path, 2, between=between) == gluon(tmp_path, 2, between=between, NGRAPH_KVSTORE_OVERLAP="0")


@pytest.mark.slow
def test_the_same_bits_in_each_run(tmp_path: Path):
    assert gluon(tmp_path, 3) == gluon(tmp_path, 3)


MODULE = """
kv = mx.kv.create(NAME)
data = mx.sym.Variable("data")
hidden = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=32, name="a"), act_type="relu")
net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=10, name="b"), name="softmax")
rng = np.random.default_rng(0)
images = rng.standard_normal((64, 20)).astype("f")
labels = rng.integers(0, 10, 64).astype("f")
batch, ranks = 8, kv.num_workers
mine = np.arange(64).reshape(-1, batch)[:, kv.rank * batch // ranks:(kv.rank + 1) * batch // ranks].ravel()
batches = mx.io.NDArrayIter(images[mine], labels[mine], batch // ranks, label_name="softmax_label")
module = mx.mod.Module(net)
mx.random.seed(kv.rank)
module.fit(batches, num_epoch=3, kvstore=kv, optimizer="adam", optimizer_params={"learning_rate": 0.01},
           initializer=mx.init.Xavier())
args, _ = module.get_params()
module.save_checkpoint(f"{sys.argv[1]}/net{kv.rank}", 3, save_optimizer_states=True)
module.load_optimizer_states(f"{sys.argv[1]}/net{kv.rank}-0003.states")
tell(type=kv.type, weights={name: value.asnumpy().tolist() for name, value in args.items()})
"""


@pytest.mark.parametrize("on_store", ["1", "0"])
def test_modules_train_alike(tmp_path: Path, on_store: str):
    one = jobs.job(tmp_path, 'NAME = "dist_sync_ngraph"\n' + MODULE, 1, MXNET_UPDATE_ON_KVSTORE=on_store)
    two = jobs.job(tmp_path, 'NAME = "dist_device_sync"\n' + MODULE, 2, MXNET_UPDATE_ON_KVSTORE=on_store,
                   NGRAPH_KVSTORE="1")
    assert two[0] == two[1] and two[0]["type"] == "dist_sync_ngraph"
    for name, weights in one[0]["weights"].items():
        np.testing.assert_allclose(two[0]["weights"][name], weights, rtol=1e-4, atol=1e-6)


def test_calls_of_ones_own(tmp_path: Path):
    told = jobs.job(tmp_path, """
kv = mx.kv.create("dist_sync_ngraph")
value, out = mx.nd.full((2, 3), kv.rank + 1), mx.nd.zeros((2, 3))
kv.broadcast("a", value, out)
several = [mx.nd.full((2, 3), 10 * kv.rank + i) for i in range(2)]
kv.pushpull("b", several, several)
half = mx.nd.full((3,), kv.rank + 0.5, dtype="float16")
kv.pushpull(7, half)
double = mx.nd.full((3,), kv.rank + 0.5, dtype="float64")
sums = mx.nd.zeros((3,), dtype="float64")
kv.pushpull("d", double, out=sums)
kv._barrier()
tell(out=out.asnumpy().tolist(), several=[each.asnumpy().tolist() for each in several], half=half.asnumpy().tolist(),
     sums=sums.asnumpy().tolist(), double=double.asnumpy().tolist())
""", 3)
    for rank, each in enumerate(told):
        assert each["out"] == [[1.0] * 3] * 2
        assert each["several"] == [[[63.0] * 3] * 2] * 2
        assert each["half"] == [4.5] * 3 and each["sums"] == [4.5] * 3 and each["double"] == [rank + 0.5] * 3


def test_many_arrays_of_all_sizes_and_dtypes(tmp_path: Path):
    """Summed together, in which each rank sums a share; whole numbers, of which sums are exact."""
    told = jobs.job(tmp_path, """
kv = mx.kv.create("dist_sync_ngraph")
rng = np.random.default_rng(0)
sizes = [1, 7, 300000, 5, 90000, 16, 1, 400000, 33, 70000]
dtypes = ["float32", "float16", "float32", "float64", "float16", "float32", "float64", "float32", "float32", "float64"]
wrong = []
for step in range(4):
    values = [rng.integers(-9, 9, (kv.num_workers, size)) for size in sizes]
    arrays = [mx.nd.array(each[kv.rank], dtype=dtype) for each, dtype in zip(values, dtypes)]
    kv.pushpull(list(range(len(sizes))), arrays)
    wrong += [(step, key) for key, each in enumerate(values) if (arrays[key].asnumpy() != each.sum(0)).any()]
tell(wrong=wrong)
""", 3, NGRAPH_KVSTORE_BUCKET="1")
    assert [each["wrong"] for each in told] == [[]] * 3


def test_weights_in_a_layout_of_onednn(tmp_path: Path):
    told = jobs.job(tmp_path, """
kv = mx.kv.create("dist_sync_ngraph")
layer = gluon.nn.Conv2D(64, 3, in_channels=64)
layer.initialize(mx.init.Constant(kv.rank + 1))
layer(mx.nd.ones((1, 64, 8, 8))).wait_to_read()
weight = layer.weight.data()
kv.broadcast("w", weight, weight)
tell(weights=[float(weight.min().asscalar()), float(weight.max().asscalar())])
""", 2)
    assert [each["weights"] for each in told] == [[1.0, 1.0]] * 2


def test_loops_that_push_and_pull(tmp_path: Path):
    """As scripts from before the Trainer do, of float16 too."""
    told = jobs.job(tmp_path, """
kv = mx.kv.create("dist_sync_ngraph")
weights = {1: mx.nd.full((2, 3), 5 + kv.rank), "half": mx.nd.full((4,), 1 + kv.rank, dtype="float16")}
for key, weight in weights.items():
    kv.init(key, weight)
kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.5))
for step in range(2):
    for key, weight in weights.items():
        kv.push(key, mx.nd.ones(weight.shape, dtype=weight.dtype) * (kv.rank + 1))
        kv.pull(key, out=weight)
tell(weights=[weight.asnumpy().tolist() for weight in weights.values()])
""", 2)
    assert [each["weights"] for each in told] == [[[[2.0] * 3] * 2, [-2.0] * 4]] * 2


BAD_CALLS = [
    ("""kv.broadcast("a", mx.nd.zeros(3 + kv.rank), mx.nd.zeros(3 + kv.rank))""", "the shape of a is not the same"),
    ("""[kv.init(key, mx.nd.zeros(3)) for key in "ab"]; kv.pushpull(["a", "b"][kv.rank], mx.nd.zeros(3))""",
     "the shape of a is not the same on all ranks: (3) on rank 0, nothing on rank 1"),
    ("""kv.init("a", mx.nd.zeros(3)); kv._barrier() if kv.rank else kv.pushpull("a", mx.nd.zeros(3))""",
     "pushpull on rank 0, barrier on rank 1"),
    ("""kv.init("a", mx.nd.zeros(3)); kv.pushpull("a", mx.nd.zeros(3, dtype="int32"))""", "int32 can't be summed"),
    ("""kv.save_optimizer_states("x")""", "has no optimizer"),
    ("""kv.push("a", mx.nd.zeros(3))""", "the key a has not been initialised"),
    ("""kv.set_optimizer(mx.optimizer.SGD()); kv.pushpull("a", mx.nd.ones(3), mx.nd.zeros(3))""",
     "the key a has not been initialised"),
    ("""kv.broadcast("a", mx.nd.zeros(3), mx.nd.zeros(3)); kv.pull("a", mx.nd.zeros(3))""", "keeps no array of a"),
]


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What each rank is told, of each of the calls in a store of its own."""
    told = jobs.job(tmp_path_factory.mktemp("errors"), f"""
errors = []
for script in {[script for script, _ in BAD_CALLS]!r}:
    kv = mx.kv.create("dist_sync_ngraph")
    try:
        exec(script)
    except mx.base.MXNetError as error:
        errors.append(str(error))
    else:
        errors.append("no error")
tell(errors=errors)
""", 2)
    return [each["errors"] for each in told]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls_have_clear_errors(errors: list[list[str]], number: int):
    assert all(BAD_CALLS[number][1] in each[number] for each in errors), [each[number] for each in errors]


def test_a_bad_call_ends_the_job(tmp_path: Path):
    script, message = BAD_CALLS[1]
    done, _ = jobs.run_job(tmp_path, f"kv = mx.kv.create('dist_sync_ngraph')\n{script}\n", 2)
    assert done.returncode != 0 and message in done.stderr
