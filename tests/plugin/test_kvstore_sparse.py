"""`dist_sync_ngraph` with row_sparse gradients and weights: several processes train as one does, and as MXNet does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jobs
import numpy as np
import pytest
from mxnet_helpers import needs_library

pytestmark = [needs_library, pytest.mark.usefixtures("mpi")]


@pytest.fixture(scope="module")
def mpi() -> None:
    jobs.needs_mpi()


ADAM = {"learning_rate": 0.01, "epsilon": 1e-3}
"""So that roundings of gradients that are nearly 0 don't tell."""
GLUON = {
    "dense weights": ("Embedding", "sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}, None, 1),
    "dense weights, adam": ("Embedding", "adam", ADAM, True, 1),
    "dense weights, update of one's own": ("Embedding", "adagrad", {"learning_rate": 0.1}, False, 1),
    "dense weights, group adagrad": ("Embedding", "groupadagrad", {"learning_rate": 0.1}, None, 1),
    "dense weights, two devices": ("Embedding", "sgd", {"learning_rate": 0.1}, True, 2),
    "dense weights, two devices, update of one's own": ("Embedding", "adam", ADAM, False, 2),
    "sparse weights": ("SparseEmbedding", "sgd", {"learning_rate": 0.1, "momentum": 0.9}, None, 1),
    "sparse weights, adam": ("SparseEmbedding", "adam", ADAM, True, 1),
    "sparse weights, two devices": ("SparseEmbedding", "adagrad", {"learning_rate": 0.1}, None, 2),
}
"""The layer, the optimizer, whether it is in the store, and how many devices each process has."""
MODULES = {
    f"module, {weights} weights, {where}": (weights, on_store)
    for weights in ("default", "row_sparse")
    for where, on_store in (("in the store", "1"), ("update of one's own", "0"))
}
CASES = [*GLUON, *MODULES]

TRAINING = f"""
import os
GLUON, MODULES = {GLUON!r}, {MODULES!r}
""" + """
batch, words, steps, size = 12, 4, 6, 50
rng = np.random.default_rng(0)
texts = rng.integers(0, size, (steps, batch, words))
labels = rng.integers(0, 3, (steps, batch))

def gluon_case(layer, optimizer, settings, on_store, devices):
    kv = mx.kv.create(NAME)
    mine = slice(kv.rank * batch // kv.num_workers, (kv.rank + 1) * batch // kv.num_workers)
    contexts = [mx.cpu(number) for number in range(devices)]
    mx.random.seed(1 + kv.rank)  # other weights, until rank 0's are sent
    bias = optimizer != "groupadagrad"
    net = gluon.nn.Sequential()
    net.add(gluon.contrib.nn.SparseEmbedding(size, 8) if layer == "SparseEmbedding"
            else gluon.nn.Embedding(size, 8, sparse_grad=True),
            gluon.nn.Dense(16, activation="relu", in_units=words * 8, use_bias=bias),
            gluon.nn.Dense(3, in_units=16, use_bias=bias))
    net.initialize(mx.init.Xavier(), ctx=contexts)
    net[1].hybridize(), net[2].hybridize()
    trainer = gluon.Trainer(net.collect_params(), optimizer, settings, kvstore=kv if GIVEN else NAME,
                            update_on_kvstore=on_store)
    lossf = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for x, y in zip(texts, labels):
        parts = zip(*(gluon.utils.split_and_load(part[mine], contexts, even_split=False) for part in (x, y)))
        with autograd.record():
            found = [lossf(net(ids), label) for ids, label in parts]
        for loss in found:
            loss.backward()
        trainer.step(batch)
        losses.append(sum(float(loss.sum().asscalar()) for loss in found))
    net.save_parameters(f"{sys.argv[1]}/net{kv.rank}.params")
    saved = mx.nd.load(f"{sys.argv[1]}/net{kv.rank}.params")
    return losses, {name: value.asnumpy().tolist() for name, value in saved.items()}

def module_case(stype, on_store):
    os.environ["MXNET_UPDATE_ON_KVSTORE"] = on_store
    kv = mx.kv.create(NAME)
    mine = slice(kv.rank * batch // kv.num_workers, (kv.rank + 1) * batch // kv.num_workers)
    mx.random.seed(1 + kv.rank)
    weight = mx.sym.Variable("embed_weight", stype=stype)
    embedded = mx.sym.Embedding(mx.sym.Variable("data"), weight=weight, input_dim=size, output_dim=8, sparse_grad=True)
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(embedded, num_hidden=3, name="b"), name="softmax")
    batches = mx.io.NDArrayIter(texts[:, mine].reshape(-1, words).astype("f"), labels[:, mine].ravel().astype("f"),
                                batch // kv.num_workers, label_name="softmax_label")
    module = mx.mod.Module(net)
    losses = []
    read = lambda found: losses.append(float(found.locals["self"].get_outputs()[0].square().sum().asscalar()))
    module.fit(batches, num_epoch=2, kvstore=kv, optimizer="sgd", optimizer_params={"learning_rate": 0.5},
               initializer=mx.init.Xavier(), batch_end_callback=read,
               sparse_row_id_fn=lambda batch: {"embed_weight": batch.data[0]} if stype == "row_sparse" else {})
    args, _ = module.get_params()
    return losses, {name: value.asnumpy().tolist() for name, value in args.items()}

told = {name: gluon_case(*case) for name, case in GLUON.items()}
told.update((name, module_case(*case)) for name, case in MODULES.items())
kv = mx.kv.create(NAME)
tell(type=kv.type, **told)
"""


def training(tmp_path_factory: pytest.TempPathFactory, name: str, ranks: int, *, given: bool = True,
             **environment: str) -> list[Any]:
    """Per rank, for each of CASES the losses of its part and all weights at the end."""
    folder = tmp_path_factory.mktemp(f"{name}-{ranks}")
    return jobs.job(folder, f"NAME, GIVEN = {name!r}, {given}\n{TRAINING}", ranks, **environment)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What MXNet alone trains, in one process."""
    return training(tmp_path_factory, "local", 1, given=False, MXNET_SUBGRAPH_BACKEND="NONE")[0]


@pytest.fixture(scope="module", params=[1, 2, 3])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == 2:  # as a script that knows nothing of us
        return training(tmp_path_factory, "dist_sync", 2, given=False, NGRAPH_KVSTORE="1")
    return training(tmp_path_factory, "dist_sync_ngraph", request.param)


@pytest.mark.parametrize("case", CASES)
def test_training_is_that_of_one_process(stock: Any, told: Any, case: str) -> None:
    assert all(each["type"] == "dist_sync_ngraph" for each in told)
    losses, weights = stock[case]
    np.testing.assert_allclose(np.sum([each[case][0] for each in told], axis=0), losses, rtol=1e-5)
    assert set(told[0][case][1]) == set(weights)
    for each in told:
        assert each[case][1] == told[0][case][1]  # all bits, in all ranks
    for name, weight in weights.items():
        np.testing.assert_allclose(told[0][case][1][name], weight, rtol=1e-5, atol=1e-6, err_msg=name)


ROWS = """
kv = mx.kv.create("dist_sync_ngraph")

def rows(ids, value=1.0, shape=(6, 2), dtype="float32", ctx=mx.cpu()):
    if not ids:
        return mx.nd.sparse.zeros("row_sparse", shape, ctx, dtype)
    return mx.nd.sparse.row_sparse_array((np.full((len(ids), *shape[1:]), value), ids), shape, ctx, dtype)

def seen(array):
    return array.stype, array.dtype.__name__, array.asnumpy().tolist()
"""


def test_calls_of_ones_own(tmp_path: Path) -> None:
    """Without an optimizer: ranks 0 and 2 have rows, 1 has none."""
    mine = "[[0, 3], [], [3, 5]][kv.rank]"
    told = jobs.job(tmp_path, ROWS + f"""
mine = {mine}
place, out, whole = rows(mine, 1 + kv.rank), rows([0, 1]), mx.nd.ones((6, 2))
kv.pushpull("place", place)
kv.pushpull("out", rows(mine, 1 + kv.rank), out=[out, whole])
half, double = rows(mine, 0.1, dtype="float16"), rows(mine, 0.1, (6,), "float64")
mixed = [rows(mine, 1 + kv.rank, (6, 2, 2)), mx.nd.ones((2,)), half, double, mx.nd.ones((3,))]
kv.pushpull(list("abcde"), mixed)
devices = [rows(mine, 1 + kv.rank, ctx=mx.cpu(number)) for number in range(2)]
kv.pushpull("devices", devices)
nothing = rows([])
kv.pushpull("nothing", nothing)
given = rows([kv.rank])
kv.broadcast("given", rows([2 + kv.rank]), given)
weight = rows([0])
weight.attach_grad()
with autograd.record():  # where Gluon makes a store ready whose shapes come with the first batch, and pulls rows
    kv.init("recorded", rows([3 + kv.rank]))
    kv.row_sparse_pull("recorded", weight, row_ids=mx.nd.array([3, 5]))
tell(**{{name: seen(array) for name, array in [
    ("place", place), ("out", out), ("whole", whole), ("dense", mixed[1]), ("dense2", mixed[4]), ("deep", mixed[0]),
    ("half", half), ("double", double), ("device", devices[1]), ("nothing", nothing), ("given", given),
    ("recorded", weight)]}},
    ids=place.indices.asnumpy().tolist(), none=nothing.indices.shape)
""", 3)
    column = np.array([1, 0, 0, 4, 0, 3.0])
    whole = np.repeat(column[:, None], 2, 1).tolist()
    tenths = [0.1, 0, 0, 0.2, 0, 0.1]
    for each in told:
        assert each["place"] == each["out"] == ["row_sparse", "float32", whole] and each["ids"] == [0, 3, 5]
        assert each["whole"] == ["default", "float32", whole]
        assert each["dense"] == ["default", "float32", [3.0] * 2] and each["dense2"][2] == [3.0] * 3
        assert each["deep"] == ["row_sparse", "float32", [[row] * 2 for row in whole]]
        assert each["half"] == ["row_sparse", "float16", np.float16([[x] * 2 for x in tenths]).tolist()]
        assert each["double"] == ["row_sparse", "float64", tenths]
        assert each["device"] == ["row_sparse", "float32", (2 * np.array(whole)).tolist()]
        assert each["nothing"] == ["row_sparse", "float32", [[0.0] * 2] * 6] and each["none"] == [0]
        assert each["recorded"] == ["row_sparse", "float32", [[float(row == 3)] * 2 for row in range(6)]]
        assert each["given"] == ["row_sparse", "float32", [[float(row == 2)] * 2 for row in range(6)]]


def test_only_rows_travel(tmp_path: Path) -> None:
    """Their numbers and values: of 2,000 rows of an embedding of 200,000 x 128 a 98th of the dense gradient."""
    told = jobs.job(tmp_path, ROWS + """
from ngraph_mxnet.distributed import world

class Counting:
    def __init__(self, comm):
        self.comm, self.sent = comm, 0

    def __getattr__(self, name):
        def call(*arguments, **named):
            self.sent += sum(each.nbytes for each in arguments[:2] if isinstance(each, np.ndarray)
                             and (name != "Iallgather" or each is arguments[0]))
            return getattr(self.comm, name)(*arguments, **named)
        return call

shape, ids = (200_000, 128), [3 * number + kv.rank for number in range(2000)]
gradient = rows(ids, 1 + kv.rank, shape)
world().comm = counting = Counting(world().comm)
kv.pushpull("w", gradient)
tell(sent=counting.sent, rows=gradient.indices.shape[0], total=float(gradient.data.sum().asscalar()))
""", 2)
    for each in told:
        assert each["rows"] == 4000 and each["total"] == 3 * 2000 * 128
        assert 2000 * (8 + 4 * 128) <= each["sent"] < 2000 * (8 + 4 * 128) + 100
        assert 4 * 200_000 * 128 / each["sent"] > 98


@pytest.mark.parametrize("ranks", [1, 2])
def test_loops_that_push_and_pull_rows(tmp_path: Path, ranks: int) -> None:
    """With an optimizer in the store, whose lazy update leaves other rows alone in spite of the weight decay."""
    told = jobs.job(tmp_path, ROWS + """
kv.init(["w", "d"], [rows(list(range(6)), 1 + kv.rank), mx.nd.full((6, 2), 1 + kv.rank)])
whole = rows([])
kv.pull("w", whole, ignore_sparse=False)
begun = seen(whole)
kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.5, wd=0.1))
for key in "wd":
    kv.push(key, [rows([1 + kv.rank]), rows([1 + kv.rank, 4], ctx=mx.cpu(1))])
ignored, dense, some, others, none = rows([5], 7.0), mx.nd.zeros((6, 2)), rows([5]), rows([]), rows([5])
kv.pull("w", ignored)
kv.pull("d", dense)
kv.row_sparse_pull("w", out=[some, others], row_ids=mx.nd.array([[4, 1], [4, 0]]))
kv.row_sparse_pull("w", out=none, row_ids=mx.nd.array([]))
each = [rows([]), rows([])]
kv.row_sparse_pull(["w"], out=[each], row_ids=[[mx.nd.array([0], dtype="int64"), mx.nd.array([2], dtype="float16")]])
kv.save_optimizer_states(f"{sys.argv[1]}/{kv.rank}.states")
kv.load_optimizer_states(f"{sys.argv[1]}/{kv.rank}.states")
plain = mx.kv.create("dist_sync_ngraph")  # no optimizer: what is pushed takes the place
plain.init("x", mx.nd.ones((6, 2)))
plain.push("x", rows([kv.rank, 3]))
taken = rows([])
plain.row_sparse_pull("x", out=taken, row_ids=mx.nd.arange(6))
tell(begun=begun, ignored=seen(ignored), dense=seen(dense), some=seen(some), ids=some.indices.asnumpy().tolist(),
     others=seen(others), none=seen(none), each=[part.indices.asnumpy().tolist() for part in each], taken=seen(taken))
""", ranks)

    def updated(gradient: float) -> float:
        return 1 - 0.5 * (gradient + 0.1) if gradient else 1.0

    gradients = np.array([0, 2, 2 if ranks == 2 else 0, 0, ranks, 0.0])
    weights = [updated(gradient) for gradient in gradients]
    for each in told:
        assert each["begun"] == ["row_sparse", "float32", [[1.0] * 2] * 6]
        assert each["ignored"][2] == [[7.0 * (row == 5)] * 2 for row in range(6)]
        np.testing.assert_allclose(each["dense"][2], np.repeat(np.array(weights)[:, None], 2, 1), rtol=1e-6)
        wanted = [[weights[row] if row in (0, 1, 4) else 0.0] * 2 for row in range(6)]
        np.testing.assert_allclose(each["some"][2], wanted, rtol=1e-6)
        assert each["some"] == each["others"] and each["ids"] == [0, 1, 4]
        assert each["none"][2] == [[0.0] * 2] * 6 and each["each"] == [[0], [2]]
        pushed = np.bincount([3] * ranks + list(range(ranks)), minlength=6).astype(float)
        assert each["taken"][2] == [[value] * 2 for value in pushed]


ERRORS = {
    'kv.pushpull("a", mx.nd.ones((3, 3)).tostype("csr"))': "the gradient of a is csr, dist_sync_ngraph sums dense or",
    'kv.pushpull("a", [rows([1]), mx.nd.ones((6, 2))])': "the gradient of a is default and row_sparse",
    'kv.pushpull("a", rows([1], dtype="int32"))': "a: gradients of int32 can't be summed",
    'kv.pushpull("a", rows([3, 1]))': "the row ids of a don't rise",
    'kv.pushpull("a", rows([1], shape=(6, 2 + kv.rank)))':
        "the shape of a is not the same on all ranks: (6, 2) on rank 0, (6, 3) on rank 1",
    'kv.pushpull("a", rows([1], dtype=["float32", "float16"][kv.rank]))':
        "the dtype of a is not the same on all ranks: float32 on rank 0, float16 on rank 1",
    'kv.pushpull("a", [rows([1]), mx.nd.ones((6, 2))][kv.rank])':
        "the storage type of a is not the same on all ranks: row_sparse on rank 0, default on rank 1",
    'kv.row_sparse_pull("dense", out=rows([]), row_ids=mx.nd.array([1]))': "the store's dense is default",
    'kv.row_sparse_pull("w", out=mx.nd.ones((6, 2)), row_ids=mx.nd.array([1]))': "the array for rows of w is default",
    'kv.row_sparse_pull("w", out=rows([]), row_ids=mx.nd.array([2, 6]))': "w has 6 rows, found the row ids 2 to 6",
    'kv.row_sparse_pull("w", out=[rows([])], row_ids=[mx.nd.array([2])] * 2)': "1 arrays for w have 2 of row ids",
    'kv.row_sparse_pull("x", out=rows([]), row_ids=mx.nd.array([2]))': "the key x has not been initialised",
    'kv.row_sparse_pull("w", out=rows([]))': "row_sparse_pull of w wants out and row_ids",
}


def test_bad_calls_have_clear_errors(tmp_path: Path) -> None:
    told = jobs.job(tmp_path, ROWS + f"""
kv.init(["w", "dense"], [rows([0, 1, 2]), mx.nd.ones((6, 2))])
errors = {{}}
for call in {list(ERRORS)!r}:
    try:
        eval(call)
    except mx.base.MXNetError as error:
        errors[call] = str(error)
tell(errors=errors)
""", 2)
    for each in told:
        for call, message in ERRORS.items():
            assert message in each["errors"].get(call, "no error"), call
