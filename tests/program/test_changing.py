"""Which sizes become symbols as shapes change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ngraph_mxnet.ir.ranges import Guard
from ngraph_mxnet.ir.sizes import symbol
from ngraph_mxnet.program.ranges import (
    MOST_RANGES,
    Binding,
    ChangingShapes,
    RangePrograms,
    Shapes,
    Template,
    told_by_place,
)


def test_what_has_changed_becomes_a_symbol() -> None:
    changing = ChangingShapes()
    assert changing.symbolic(((2, 3, 8, 8), (10, 3))) is None
    assert changing.symbolic(((2, 3, 8, 8), (10, 3))) is None, "the same again tells nothing"
    shapes, hint = changing.symbolic(((2, 3, 9, 8), (10, 3)))
    assert str(shapes) == "((2, 3, H, 8), (10, 3))" and hint == {"H": 9}
    shapes, hint = changing.symbolic(((5, 3, 9, 8), (10, 3)))
    assert str(shapes) == "((N, 3, H, 8), (10, 3))" and hint == {"N": 5, "H": 9}


def test_sizes_that_change_together_are_one_symbol() -> None:
    changing = ChangingShapes()
    changing.symbolic(((4, 7), (4, 9), (1, 7)))
    shapes, hint = changing.symbolic(((5, 8), (5, 9), (1, 8)))
    assert str(shapes) == "((N, T), (N, 9), (1, T))" and hint == {"N": 5, "T": 8}
    shapes, hint = changing.symbolic(((6, 8), (7, 9), (1, 8)))
    assert str(shapes) == "((N, T), (N2, 9), (1, T))" and hint == {"N": 6, "N2": 7, "T": 8}


class Once(Template):
    """Holds for the shapes for which it was made, or for none."""

    def __init__(self, shapes: Shapes, guards: Sequence[Guard] = ()) -> None:
        self.shapes, self.guards = shapes, guards

    def bind(self, shapes: Shapes) -> Any:
        return "bound" if shapes == self.shapes else None


def asked(sizes: Iterable[int], made: Callable[[Shapes], Template | None], *, are_told: bool = False) -> list[int]:
    """The sizes for which it is compiled for a range."""
    found: list[int] = []

    def make(symbolic: Shapes, hint: Binding) -> Template | None:
        found.extend(hint.values())
        return made(((*hint.values(), 3),))

    ranges = RangePrograms(ChangingShapes().symbolic, are_told=are_told)
    for size in sizes:
        bound = ranges.bind(((size, 3),), make, "a test")
        assert bound is None or found[-1] == size
        assert bound is None or ranges.bind(((size, 3),), make, "a test") == "bound", "it is kept"
    return found


def test_few_ranges_are_compiled() -> None:
    assert asked(range(1, 2000), Once) == list(range(2, 2 + MOST_RANGES))


def test_after_two_failures_it_is_left() -> None:
    for fails in (lambda shapes: None, lambda shapes: Once(())):
        assert asked(range(1, 9), fails) == [2, 3]


def test_a_range_of_one_size_is_a_failure_unless_it_is_wanted() -> None:
    def narrow(shapes: Shapes) -> Template:
        return Once(shapes, [Guard(symbol("N", 1), shapes[0][0])])

    assert asked(range(1, 20), narrow) == [2, 3]
    assert len(asked(range(1, 20), narrow, are_told=True)) == MOST_RANGES


def test_what_is_told_is_a_symbol_at_once() -> None:
    changing = ChangingShapes({(0, 0): "data 0", (0, 2): "data 2", (1, 0): "data 0"}, at_once=True)
    shapes, hint = changing.symbolic(((2, 3, 8, 8), (2, 8)))
    assert str(shapes) == "((N, 3, H, 8), (N, 8))" and hint == {"N": 2, "H": 8}
    shapes, hint = changing.symbolic(((2, 3, 9, 7), (2, 7)))
    assert str(shapes) == "((N, 3, H, W), (N, W))" and hint == {"N": 2, "H": 9, "W": 7}


def test_axes_are_told_by_names_of_inputs() -> None:
    """What a model fixes by itself stays, what it names has its name."""
    axes = {"data": (0, 1, 2, 5), "any": (7,), "other": (0,)}
    assert told_by_place(axes, [("mask", (None,)), ("data", ("batch", None, 3)), ("any", None)]) == {
        (1, 0): "batch", (1, 1): "data 1", (2, 7): "any 7"}
    assert told_by_place({}, [("data", (None, 3))]) == {}


def test_what_a_model_names_is_a_symbol_once_shapes_change() -> None:
    changing = ChangingShapes({(0, 0): "batch", (0, 1): "length", (1, 1): "length"})
    assert changing.symbolic(((2, 5), (7, 5))) is None
    assert changing.symbolic(((2, 5), (7, 5))) is None
    shapes, hint = changing.symbolic(((2, 6), (7, 6)))
    assert str(shapes) == "((N, T), (7, T))" and hint == {"N": 2, "T": 6}
