"""Which sizes become symbols as shapes change."""

from __future__ import annotations

from ngraph_mxnet.runtime.changing import ChangingShapes, told_by_place


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


def test_few_ranges_are_compiled() -> None:
    changing = ChangingShapes()
    found = [changing.symbolic(((size, 3, size + 7, 8),)) for size in range(1, 2000)]
    assert sum(each is not None for each in found) == 8


def test_after_two_failures_it_is_left() -> None:
    changing = ChangingShapes()
    changing.symbolic(((1,),))
    assert changing.symbolic(((2,),)) is not None
    changing.failed()
    assert changing.symbolic(((3,),)) is not None
    changing.failed()
    assert changing.symbolic(((4,),)) is None


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
