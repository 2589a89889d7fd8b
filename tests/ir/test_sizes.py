"""Sizes that are not known yet: whatever is computed with them is what ints give."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngraph_mxnet.base.errors import GraphError
from ngraph_mxnet.ir.ranges import Guard, Guards, assuming, because, parse_dim, parse_guard, split_sizes
from ngraph_mxnet.ir.sizes import (
    MOST,
    Dim,
    UnknownSize,
    are_same,
    at_hand,
    both,
    bounds,
    cached,
    either,
    evaluate,
    greatest,
    is_above,
    is_one,
    is_true,
    least,
    negated,
    symbol,
    where,
)

N, H, W = symbol("N", 1, 32), symbol("H", 2, 4096), symbol("W", 2, 4096)
SYMBOLS = {"N": N, "H": H, "W": W}
BINDINGS = st.fixed_dictionaries({"N": st.integers(1, 32), "H": st.integers(2, 4096), "W": st.integers(2, 4096)})
UNARY = {"negative": operator.neg, "absolute": lambda size: greatest(size, -size)}
BINARY = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "least": least,
          "greatest": greatest}
BY = {"quotient": operator.floordiv, "remainder": operator.mod, "ceil": lambda size, by: -(-size // by)}
COMPARISONS = {"equal": operator.eq, "unequal": operator.ne, "less": operator.lt, "at_most": operator.le,
               "more": operator.gt, "at_least": operator.ge}


@st.composite
def expressions(draw, depth=4):
    """A function of N, H and W that takes ints and Dims alike."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        leaf = draw(st.sampled_from(["N", "H", "W", *range(-9, 20)]))
        return (lambda given: given[leaf]) if isinstance(leaf, str) else (lambda given: leaf)
    kind = draw(st.sampled_from(["unary", "binary", "binary", "by", "by", "by size", "where"]))
    first = draw(expressions(depth - 1))
    if kind == "unary":
        function = UNARY[draw(st.sampled_from(sorted(UNARY)))]
        return lambda given: function(first(given))
    if kind == "by":
        function, number = BY[draw(st.sampled_from(sorted(BY)))], draw(st.integers(1, 40))
        return lambda given: function(first(given), number)
    second = draw(expressions(depth - 1))
    if kind == "by size":
        function = BY[draw(st.sampled_from(sorted(BY)))]
        return lambda given: function(first(given), greatest(1, second(given)))
    if kind == "binary":
        function = BINARY[draw(st.sampled_from(sorted(BINARY)))]
        return lambda given: function(first(given), second(given))
    compare, other = COMPARISONS[draw(st.sampled_from(sorted(COMPARISONS)))], draw(expressions(depth - 1))
    return lambda given: where(compare(first(given), other(given)), first(given), second(given))


@given(expressions(), BINDINGS)
def test_arithmetic_is_that_of_ints(expression, binding):
    size, wanted = expression(SYMBOLS), expression(binding)
    assert evaluate(size, binding) == wanted
    low, high = bounds(size)
    assert low <= wanted <= high


def hold(guards: Guards, binding: dict[str, int]) -> bool:
    return all(guard.holds(binding) for guard in guards.found.values())


@given(expressions(), expressions(), BINDINGS, st.sampled_from(sorted(COMPARISONS)))
def test_comparisons_are_those_of_ints(left, right, binding, name):
    compare = COMPARISONS[name]
    found, wanted = compare(left(SYMBOLS), right(SYMBOLS)), compare(left(binding), right(binding))
    assert evaluate(found, binding) == wanted
    if not isinstance(found, Dim):
        assert bool(found) is wanted
    assert not is_true(found) or wanted
    with assuming(Guards(binding)) as guards, because("the test"):
        assert bool(found) is wanted
    assert hold(guards, binding)


@given(expressions(), BINDINGS, st.integers(-50, 50))
def test_what_is_known_to_be_above_is_above(expression, binding, least_):
    if is_above(expression(SYMBOLS), least_):
        assert expression(binding) > least_


@given(expressions())
def test_its_text_reads_back(expression):
    size = expression(SYMBOLS)
    assert are_same(parse_dim(str(size), SYMBOLS), size)


@given(expressions(), BINDINGS)
def test_equal_sizes_are_one(expression, binding):
    again = expression({name: symbol(name, *bounds(dim)) for name, dim in SYMBOLS.items()})
    size = expression(SYMBOLS)
    assert are_same(size, again) and hash(size) == hash(again)
    assert not isinstance(size == again, Dim)


@given(expressions(3), expressions(3), BINDINGS)
def test_conditions_join(left, right, binding):
    pairs = [(both, lambda a, b: a and b), (either, lambda a, b: a or b)]
    a, b = left(SYMBOLS) > 3, right(SYMBOLS) < 9
    x, y = left(binding) > 3, right(binding) < 9
    for join, wanted in pairs:
        assert bool(evaluate(join(a, b), binding)) is wanted(x, y)
    assert bool(evaluate(negated(a), binding)) is (not x)


@pytest.mark.parametrize(("size", "text"), [
    (lambda: (H * W) // W, "H"),
    (lambda: ((H + 5) // 2 + 1) // 2, "(H + 3)//4 + 1"),
    (lambda: -(-H // 16), "(H + 15)//16"),
    (lambda: (N * ((H + 1) // 2) * W) // ((H + 1) // 2), "N*W"),
    (lambda: ((H // 2 + 1) * (W // 2 + 1)) // (W // 2 + 1), "H//2 + 1"),
    (lambda: (4 * H + 6) // 4, "H + 1"),
    (lambda: (8 * H) % 4, "0"),
    (lambda: N // 33, "0"),
    (lambda: N % 33, "N"),
    (lambda: 2 * (H // 2), "2*(H//2)"),
])
def test_it_is_simplified(size, text):
    assert str(size()) == text


def test_what_bounds_decide_is_a_bool():
    assert (N < 33) is True and (H == 1) is False and (H * W > 3) is True and (2 * H == 2 * W + 1) is False
    assert ((H // 2 + 1) * (W // 2 + 1) - (H // 2 + 1) > 0) is True
    assert (H - 2 * (H // 2) >= 0) is True and (H + 1 > 2 * ((H + 1) // 2) - 1) is True


def test_without_guards_nothing_is_assumed():
    for asks in (lambda: bool(H > 7), lambda: int(H), lambda: [0] * H, lambda: at_hand(H)):
        with pytest.raises(UnknownSize, match="H"):
            asks()


def test_a_question_needs_a_reason():
    """But for one that was answered before."""
    with assuming(Guards({"H": 9})) as guards:
        with because("the test"):
            assert H > 7
        assert H > 7 and not H <= 7 and at_hand(H) == 9
        for asks in (lambda: bool(H > 8), lambda: int(H)):
            with pytest.raises(UnknownSize, match="what for"):
                asks()
    assert [str(guard) for guard in guards.found.values()] == ["H - 7 > 0"]


def test_guards_remember_what_was_asked():
    with assuming(Guards({"N": 4, "H": 20, "W": 30})) as guards, because("the test"):
        assert H != W and int(N) == 4 and max(H, W) is W
        assert at_hand(H) == 20
    assert [(str(guard), guard.why) for guard in guards.found.values()] == [
        ("H - W != 0", "the test"), ("N is 4", "the test"), ("H - W + 1 <= 0", "the test")]
    assert hold(guards, {"N": 4, "H": 2, "W": 3}) and not hold(guards, {"N": 4, "H": 3, "W": 3})
    with pytest.raises(UnknownSize), assuming(Guards.of(guards.found.values())):
        bool(H > 3)


@given(st.lists(expressions(3), min_size=1, max_size=4), BINDINGS)
def test_guards_read_back(sizes, binding):
    with assuming(Guards(binding)) as guards, because("the test"):
        for size in sizes:
            bool(size(SYMBOLS) > 7)
            int(size(SYMBOLS))
    for guard in guards.found.values():
        assert parse_guard(str(guard), SYMBOLS) == Guard(guard.condition, guard.value)
        assert guard.is_narrow <= (len(guard.condition.symbols) == 1)


@pytest.mark.parametrize(("size", "is_narrow"), [
    (2 + H, True), (H - 30, True), (3 * H + 2, True), (2 * ((H + 1) // 2) + 2, False), (2 - H * H, False),
    (H + W, False), (H // 2, True), (H // 14, False), (7 + H // 2 + W, False)])
def test_whether_one_value_is_left_or_a_few(size, is_narrow):
    """Whatever comes first in it, also read from the terms in another order."""
    value = evaluate(size, {"H": 28, "W": 28})
    for condition in (size, Dim(dict(reversed(size.terms.items())))):
        assert Guard(condition, value).is_narrow is is_narrow
        assert parse_guard(str(Guard(condition, value)), SYMBOLS) == Guard(size, value)
        with assuming(Guards({"H": 28, "W": 28})) as guards, because("the test"):
            assert bool(condition == value)
        assert [guard.is_narrow for guard in guards.found.values()] == [is_narrow]


def test_sizes_of_two_values_are_answered():
    """`T - 5` is 0 or 1, as a condition is."""
    size = symbol("T", 5, 6)
    for value in (5, 6):
        with assuming(Guards({"T": value})) as guards, because("the test"):
            assert bool(size == 6) is (value == 6) and int(6 - size) == 6 - value and int(size) == value
        assert hold(guards, {"T": value}) and not hold(guards, {"T": 11 - value})


def test_an_answer_is_not_remembered_for_others():
    asked = []

    @cached(8)
    def is_wide(size):
        asked.append(size)
        return bool(size > 100)

    for width in (7, 200):
        with assuming(Guards({"W": width})) as guards, because("the test"):
            assert is_wide(W) is (width > 100)
        assert len(guards.found) == 1
    assert is_wide(5) is is_wide(5) is False and sum(not isinstance(each, Dim) for each in asked) == 1


@pytest.mark.parametrize("text", ["", "H +", "Q", "H.real", "H ** 2", "__import__('os')", "H if N else W", "1.5", "H/2",
                                  "H//0", "min(H, key=W)", "True"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(GraphError, match="size"):
        parse_dim(text, SYMBOLS)


@pytest.mark.parametrize(("name", "low", "high"), [("1N", 1, 2), ("N", 3, 3), ("N", -1, 3), ("N", 1, MOST + 1),
                                                   ("", 1, 2)])
def test_symbols_are_checked(name, low, high):
    with pytest.raises(ValueError, match="symbol"):
        symbol(name, low, high)


def test_parts_of_a_shape():
    assert split_sizes("N,3,min(H, 4),where((H > 0), 1, W)") == ["N", "3", "min(H, 4)", "where((H > 0), 1, W)"]
    assert is_one(1) and not is_one(N)
