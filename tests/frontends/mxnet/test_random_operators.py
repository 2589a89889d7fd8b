"""Operators that draw random numbers, in models that MXNet does not run: distributions, types, seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from scipy import stats

import ngraph_mxnet
from ngraph_mxnet.base.errors import ConfigError, UnsupportedError
from ngraph_mxnet.frontends.model import model_of
from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.frontends.mxnet.rules.registry import all_rules, drawing_rules, why_left

COUNT = 100_000
LEAST = 1e-3
"""Of the probability of what is found. Seeds are fixed, so a test passes always or never."""
P, Q, DATA = (mx.sym.Variable(name) for name in "pqx")


def made(op: str, *inputs: str, **attributes: Any) -> Any:
    """The operator as a symbol, whatever module of MXNet's has it."""
    outputs = 2 if attributes.get("get_prob") else 1
    nodes = [*({"op": "null", "name": name, "inputs": []} for name in inputs),
             {"op": op, "name": "drawn", "attrs": {key: str(value) for key, value in attributes.items()},
              "inputs": [[place, 0, 0] for place in range(len(inputs))]}]
    return mx.sym.load_json(json.dumps({
        "nodes": nodes, "arg_nodes": [*range(len(inputs))], "attrs": {"mxnet_version": ["int", 10901]},
        "heads": [[len(inputs), output, 0] for output in range(outputs)]}))


def drawn(symbol: Any, backend: str = "CPU", **inputs: np.ndarray) -> list[np.ndarray]:
    """The first call's results."""
    compiled = ngraph_mxnet.compile(symbol, backend, params={}, shapes={name: a.shape for name, a in inputs.items()},
                                    dtypes={name: str(a.dtype) for name, a in inputs.items()})
    return compiled(inputs)


def sample(operator: Callable[..., Any], *parameters: float) -> np.ndarray:
    """COUNT numbers of one distribution, whose parameters are inputs."""
    inputs = {name: np.full(1, number, np.float32) for name, number in zip("pq", parameters, strict=False)}
    (found,) = drawn(operator(*(mx.sym.Variable(name) for name in inputs), shape=(COUNT,)), **inputs)
    assert found.shape == (1, COUNT) and found.dtype == np.float32
    return found[0]


CONTINUOUS = [
    (mx.sym.sample_uniform, (-2, 3), stats.uniform(-2, 5)),
    (mx.sym.sample_normal, (-2, 3), stats.norm(-2, 3)),
    (mx.sym.sample_exponential, (0.25,), stats.expon(scale=4)),
    *((mx.sym.sample_gamma, (alpha, 3), stats.gamma(alpha, scale=3)) for alpha in (0.3, 0.99, 1, 1.5, 7, 1000)),
]


@pytest.mark.parametrize(("operator", "parameters", "law"), CONTINUOUS, ids=lambda one: getattr(one, "__name__", None))
def test_continuous_distributions(operator: Callable[..., Any], parameters: tuple[float, ...], law: Any) -> None:
    found = sample(operator, *parameters)
    assert stats.kstest(found, law.cdf).pvalue > LEAST
    error = law.std() / np.sqrt(COUNT)
    assert abs(found.mean() - law.mean()) < 4 * error
    assert found.var() == pytest.approx(law.var(), rel=0.05)


def chances(found: np.ndarray, law: Any) -> float:
    """The probability of a chi-square as large, over the numbers that are to come ten times or more."""
    numbers = np.arange(law.ppf(1e-9), law.ppf(1 - 1e-9) + 1)
    expected = law.pmf(numbers) * found.size
    seen = np.array([np.count_nonzero(found == number) for number in numbers])
    often = expected >= 10
    rest = np.array([found.size - seen[often].sum()]), np.array([found.size - expected[often].sum()])
    both = [np.concatenate(pair) if rest[1][0] >= 1 else pair[0] for pair in zip((seen[often], expected[often]), rest,
                                                                                strict=True)]
    return float(stats.chisquare(both[0], both[1] * both[0].sum() / both[1].sum()).pvalue)


COUNTS = [
    *((mx.sym.sample_poisson, (mean,), stats.poisson(mean)) for mean in (0.01, 1, 9.99, 10, 40, 3000)),
    *((mx.sym.sample_negative_binomial, (k, p), stats.nbinom(k, p)) for k, p in ((1, 0.5), (5, 0.1), (20, 0.6))),
    *((mx.sym.sample_generalized_negative_binomial, (mean, alpha), stats.nbinom(1 / alpha, 1 / (1 + alpha * mean)))
      for mean, alpha in ((3, 0.5), (30, 0.1))),
    (mx.sym.sample_generalized_negative_binomial, (4, 0), stats.poisson(4)),
]


@pytest.mark.parametrize(("operator", "parameters", "law"), COUNTS, ids=lambda one: getattr(one, "__name__", None))
def test_counts(operator: Callable[..., Any], parameters: tuple[float, ...], law: Any) -> None:
    found = sample(operator, *parameters)
    assert chances(found, law) > LEAST
    assert abs(found.mean() - law.mean()) < 4 * law.std() / np.sqrt(COUNT)


@pytest.mark.parametrize("mean", [0, 4, 40])
def test_a_known_mean_is_drawn_by_one_method(mean: float) -> None:
    symbol = mx.sym.broadcast_add(mx.sym.random.poisson(mean, shape=(COUNT,)), DATA)
    (found,) = drawn(symbol, x=np.zeros(1, np.float32))
    assert chances(found, stats.poisson(mean)) > LEAST if mean else not found.any()
    streams = [node for node in import_symbol(symbol.tojson(), {"x": (1,)}).nodes if node.op.name == "random_uniform"]
    assert len(streams) == (1 if mean < 10 else 2)


NUMPY = {
    "uniform": ({"low": -2, "high": 3}, stats.uniform(-2, 5)),
    "normal": ({"loc": -2, "scale": 3}, stats.norm(-2, 3)),
    "gamma": ({"shape": 2.5, "scale": 3}, stats.gamma(2.5, scale=3)),
    "exponential": ({"scale": 4}, stats.expon(scale=4)),
    "gumbel": ({"loc": -2, "scale": 3}, stats.gumbel_r(-2, 3)),
    "logistic": ({"loc": -2, "scale": 3}, stats.logistic(-2, 3)),
    "pareto": ({"a": 3}, stats.lomax(3)),
    "rayleigh": ({"scale": 2}, stats.rayleigh(scale=2)),
    "weibull": ({"a": 1.5}, stats.weibull_min(1.5)),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpys_distributions(name: str) -> None:
    attributes, law = NUMPY[name]
    symbol = mx.sym.broadcast_add(made(f"_npi_{name}", **attributes, size=(COUNT,)), DATA)
    (found,) = drawn(symbol, x=np.zeros(1, np.float32))
    assert stats.kstest(found, law.cdf).pvalue > LEAST


def test_choices() -> None:
    likely = np.array([[0.1, 0, 0.6, 0.3], [0, 0, 0, 1]], np.float32)
    places, logarithms = drawn(mx.sym.sample_multinomial(DATA, shape=(COUNT,), get_prob=True), x=likely)
    assert places.dtype == np.int32 and places.shape == logarithms.shape == (2, COUNT) and (places[1] == 3).all()
    seen = np.bincount(places[0], minlength=4)
    assert seen[1] == 0 and stats.chisquare(seen[[0, 2, 3]], [0.1 * COUNT, 0.6 * COUNT, 0.3 * COUNT]).pvalue > LEAST
    np.testing.assert_array_equal(logarithms[0], np.log(likely[0, places[0]]))


@pytest.mark.parametrize(("low", "high"), [(-3, 4), (5, 6), (0, 1 << 31)])
def test_integers(low: int, high: int) -> None:
    symbol = mx.sym.broadcast_add(mx.sym.random.randint(low, high, shape=(COUNT,), dtype="int64"), DATA)
    (found,) = drawn(symbol, x=np.zeros(1, np.int64))
    assert found.min() >= low and found.max() < high
    parts = np.bincount((found - low) * min(high - low, 50) // (high - low))
    assert len(parts) == 1 or stats.chisquare(parts).pvalue > LEAST


def test_a_shuffle_is_an_order_of_rows() -> None:
    rows = np.arange(24, dtype=np.float32).reshape(8, 3)
    firsts = []
    compiled = ngraph_mxnet.compile(mx.sym.random.shuffle(DATA), "CPU", params={}, shapes={"x": rows.shape})
    for _ in range(4000):
        (found,) = compiled(rows)
        np.testing.assert_array_equal(np.sort(found[:, 0]), rows[:, 0])
        np.testing.assert_array_equal(found - found[:, :1], rows - rows[:, :1])
        firsts.append(int(found[0, 0]) // 3)
    assert stats.chisquare(np.bincount(firsts, minlength=8)).pvalue > LEAST


# ---- types --------------------------------------------------------------------------------------------------------

FLOATS = ("float16", "float32", "float64")
PARAMETERS = {"uniform": 2, "normal": 2, "gamma": 2, "exponential": 1, "poisson": 1, "negative_binomial": 2,
              "generalized_negative_binomial": 2}
"""How many parameters each distribution has."""


def symbols() -> dict[str, list[Any]]:
    """For each operator symbols over p and q of one shape, and x."""
    found: dict[str, list[Any]] = {}
    types = [{}, *({"dtype": dtype} for dtype in FLOATS)]
    for name, count in PARAMETERS.items():
        found[f"_random_{name}_like"] = [made(f"_random_{name}_like", "x")]
        found[f"_random_{name}"] = [made(f"_random_{name}", shape=shape, **how)
                                    for shape in ((4,), (2, 3)) for how in types]
        found[f"_sample_{name}"] = [made(f"_sample_{name}", *"pq"[:count], **how, **size)
                                    for size in ({}, {"shape": (4,)}, {"shape": (2, 1)}) for how in types]
    for name, (attributes, _) in NUMPY.items():
        op, first, none = f"_npi_{name}", next(iter(attributes)), dict.fromkeys(attributes)
        typed = [{}, {"dtype": "float64"}] if name in ("uniform", "normal", "gamma") else [{}]
        found[op] = [made(op, **attributes, size=size, **how) for size in ((4,), (2, 3)) for how in typed]
        found[op] += [made(op, "p", **{**attributes, first: None}, size=size) for size in (None, (5, 2, 3))]
        found[op] += [made(op, *"pq", **none, size=None)] if len(attributes) == 2 else []
        if name in ("uniform", "normal"):
            found[f"{op}_n"] = [made(f"{op}_n", *"pq", **none, size=size) for size in ((4,), (5, 1))]
    found["_npi_bernoulli"] = [
        made("_npi_bernoulli", "p", prob=None, logit=None, is_logit=is_logit, size=None, dtype=dtype)
        for is_logit in (True, False) for dtype in ("float32", "int32", "uint8")]
    found["_random_randint"] = [made("_random_randint", low=0, high=9, shape=(2, 3), **how)
                                for how in ({}, {"dtype": "int64"}, {"dtype": "int32"})]
    found["_sample_multinomial"] = [
        made("_sample_multinomial", "x", get_prob=get_prob, dtype=dtype, **size)
        for get_prob in (False, True) for dtype in ("int32", "uint8", "float32")
        for size in ({}, {"shape": (4,)}, {"shape": (2, 1)})]
    found["_shuffle"] = [made("_shuffle", "x")]
    return found


SYMBOLS = symbols()


@pytest.mark.parametrize("name", SYMBOLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_types_are_those_of_mxnet(name: str, dtype: str) -> None:
    shapes = {"p": (2, 3), "q": (2, 3), "x": (5, 3)}
    for symbol in SYMBOLS[name]:
        given = {argument: shapes[argument] for argument in symbol.list_arguments()}
        own = dtype if name.startswith(("_sample", "_random")) or name == "_shuffle" else "float32"
        types = dict.fromkeys(given, own)
        _, wanted, _ = symbol.infer_shape(**given)
        _, elements, _ = symbol.infer_type(**types)
        graph = import_symbol(symbol.tojson(), given, types)
        assert [value.shape for value in graph.results] == wanted, symbol.tojson()
        assert [value.element.numpy for value in graph.results] == list(map(np.dtype, elements)), symbol.tojson()


def test_every_operator_with_a_rule_is_tried_and_stays_in_mxnet() -> None:
    assert set(drawing_rules()) == set(SYMBOLS)
    assert not set(drawing_rules()) & set(all_rules())
    assert all("random numbers" in (why_left(name) or "") for name in SYMBOLS)


def test_inside_mxnet_they_stay_there() -> None:
    symbol = mx.sym.relu(mx.sym.sample_normal(P, Q)) * 2
    told = ngraph_mxnet.explain(symbol, {"p": (4, 3), "q": (4, 3)})
    reasons = {verdict.op: verdict.reason for verdict in told.partition.verdicts}
    assert "sequence must be that of MXNet's own generator" in reasons["_sample_normal"]
    assert reasons["relu"] is None


def test_no_body_of_a_loop_draws() -> None:
    """Each trip would draw the same numbers."""
    looped, _ = mx.sym.contrib.foreach(lambda x, state: (x + mx.sym.random.normal_like(x), state), DATA, [Q])
    for keep_loops in (False, True):
        with pytest.raises(UnsupportedError, match="_random_normal_like stays with MXNet: it draws random numbers"):
            import_symbol(looped.tojson(), {"x": (3, 2), "q": (1,)}, keep_loops=keep_loops)


# ---- seeds --------------------------------------------------------------------------------------------------------

NOISY = mx.sym.sample_gamma(P, Q) + mx.sym.sample_normal(P, Q) * mx.sym.sample_normal(P, Q)
GIVEN = {name: np.full((2, 300), number, np.float32) for name, number in (("p", 1.5), ("q", 0.5))}
SHAPES = {name: array.shape for name, array in GIVEN.items()}


def compiled(backend: str = "CPU", shapes: Any = SHAPES, **options: Any) -> Any:
    return ngraph_mxnet.compile(NOISY, backend, params={}, shapes=shapes, **options)


def calls(model: Any, count: int = 3) -> np.ndarray:
    return np.stack([model(**GIVEN)[0] for _ in range(count)])


def test_a_seed_says_what_calls_draw() -> None:
    model = compiled()
    assert [port.name for port in model.inputs] == ["p", "q"]
    first = calls(model)
    assert all((first[0] != other).any() for other in first[1:])
    for again in (compiled(), compiled(threads=3)):
        np.testing.assert_array_equal(calls(again), first)
    model.seed(0)
    np.testing.assert_array_equal(calls(model), first)
    for seed in (1, -1, 1 << 32, np.int64(7)):
        model.seed(seed)
        assert (calls(model, 1) != first[:1]).all()
    with pytest.raises(TypeError):
        model.seed(0.5)


@pytest.mark.parametrize(("backend", "share"), [("INTERPRETER", 1e-6), ("NNP", 5e-3), ("HYBRID", 5e-3)])
def test_backends_draw_the_same(backend: str, share: float) -> None:
    """The NNP computes in float16."""
    found, wanted = calls(compiled(backend)), calls(compiled())
    assert np.abs(found - wanted).max() < share * np.abs(wanted).max()


def test_equal_draws_are_two() -> None:
    """No pass takes them for one."""
    symbol = mx.sym.sample_normal(P, Q) - mx.sym.sample_normal(P, Q)
    (found,) = drawn(symbol, **GIVEN)
    assert found.std() == pytest.approx(np.sqrt(2) * 0.5, rel=0.1)


def test_ranges_packages_and_profiles_draw_the_same(tmp_path: Any) -> None:
    first = calls(compiled())
    ranged = compiled(shapes={"p": ("N", 300), "q": ("N", 300)})
    assert [port.name for port in ranged.inputs] == ["p", "q"]
    np.testing.assert_array_equal(calls(ranged), first)
    kept = compiled().package()
    loaded = ngraph_mxnet.compile(kept)
    assert [port.name for port in loaded.inputs] == ["p", "q"]
    np.testing.assert_array_equal(calls(loaded), first)
    compiled().profile(*GIVEN.values(), rounds=2)


def test_verify_compares_with_the_interpreter() -> None:
    told = ngraph_mxnet.verify(NOISY, inputs=GIVEN, params={})
    assert told.agrees and "MXNet's come from its own generator" in str(told)
    with pytest.raises(ConfigError, match=r"found .mxnet., expected one of interpreter .* own generator"):
        ngraph_mxnet.verify(NOISY, "mxnet", inputs=GIVEN, params={})


def test_verify_of_a_file(tmp_path: Any) -> None:
    """With its own results, and with the model; what is told of it has no state."""
    path = tmp_path / "noisy.ngraph"
    ngraph_mxnet.export(NOISY, path, params={}, shapes=SHAPES, with_references=True)
    assert ngraph_mxnet.verify(path).agrees
    assert ngraph_mxnet.verify(path, of=NOISY, params={}, shapes=SHAPES).agrees
    told = model_of(path).summary()
    assert told is not None
    assert [name for one in told.sets for name, _ in one.inputs] == ["p", "q"] * len(told.sets)


def test_samples_of_quantisation_have_no_state() -> None:
    """A model that draws is quantised as any other."""
    weight = mx.sym.Variable("w")
    dense = mx.sym.FullyConnected(P, weight, num_hidden=16, no_bias=True)
    symbol = dense + mx.sym.sample_normal(dense * 0, dense * 0 + 1e-3)
    rng = np.random.default_rng(3)
    found = ngraph_mxnet.quantize(symbol, rng.standard_normal((64, 32)).astype(np.float32), progress=False,
                                  params={"w": rng.standard_normal((16, 32)).astype(np.float32)}, only_faster=False)
    (quantised,) = found.compile()(rng.standard_normal((1, 32)).astype(np.float32))
    assert quantised.shape == (1, 16) and found.recipe.scales
