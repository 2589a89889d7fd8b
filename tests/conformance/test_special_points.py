"""Every pair of options of every operator, at ties, zeros, infinities, NaN, huge and tiny numbers, against MXNet.

The default run tries the operators whose kinds of faults were found so; `-m slow` all that have a rule. What is left is
in `departures.py`, with the reason.
"""

from __future__ import annotations

from itertools import combinations, product

import pytest
from families import RECORDS
from option_pairs import applications, covering, options
from records import Case, Operand, Record
from special_points import POINTS, differences, seen
from test_gradients import NATIVE_ENDS

DRAWS = 3
UNFIT = {"Reshape-target_shape": "MXNet writes outside its arrays where the shape's size is another than the data's"}
"""Records that are not swept."""
BY_NAME = {record.name: record for record in RECORDS}
SWEPT = [record for record in RECORDS if record.op not in NATIVE_ENDS and record.name not in UNFIT]

IMAGE, CUBE, MATRIX, VECTOR = (Operand(shape) for shape in ((1, 2, 3, 3), (2, 3, 2), (2, 3), (9,)))
#: Applications with the points that found a fault in them.
SAMPLE: list[tuple[str, Case, tuple[str, ...]]] = [
    ("Pooling", Case([IMAGE], {"global_pool": True, "pool_type": "max", "kernel": "(1, 1)"}), ("ties", "corners")),
    *(("Pooling", Case([IMAGE], {"pool_type": "lp", "p_value": power, "kernel": "(2, 1)"}), ("zeros", "as drawn"))
      for power in (2, 3)),
    ("broadcast_hypot", Case([VECTOR, VECTOR]), ("ties", "zeros", "infinities", "one infinity", "huge", "denormal")),
    ("hard_sigmoid", Case([VECTOR]), ("corners", "infinities")),
    ("norm", Case([MATRIX], {"axis": 1}), ("zeros", "huge", "tiny", "denormal")),
    ("smooth_l1", Case([VECTOR], {"scalar": 1}), ("infinities", "corners")),
    ("smooth_l1", Case([VECTOR], {"scalar": 0}), ("corners",)),
    ("LeakyReLU", Case([MATRIX, Operand((1,))], {"act_type": "prelu"}), ("infinities",)),
    ("LeakyReLU-gelu", Case([MATRIX], {"act_type": "leaky", "slope": 0}), ("infinities",)),
    ("arcsinh", Case([VECTOR]), ("huge", "infinities")),
    ("broadcast_power", Case([VECTOR, VECTOR]), ("enormous",)),
    *(("_npi_norm", Case([MATRIX], {"flag": -1, "ord": order, "axis": "(0, 1)", "keepdims": True}), ("as drawn",))
      for order in (1, -1)),
    ("_npi_average", Case([MATRIX, MATRIX], {"axis": 0}), ("as drawn", "ties")),
    ("softmax_cross_entropy", Case([Operand((5, 5)), Operand((5,), values=[0, 1, 2, 3, 4])]),
     ("as drawn", "huge", "masks")),
    ("Pooling_v1", Case([IMAGE], {"kernel": "(2, 1)"}), ("ties",)),
    ("Pooling_v1", Case([IMAGE], {"kernel": "(2, 1)", "global_pool": True}), ("ties",)),
    ("_contrib_quadratic", Case([VECTOR], {"a": 2, "b": -3, "c": 1}), ("one infinity", "enormous")),
    *(("SoftmaxOutput", Case([CUBE, Operand((2, 2) if "multi_output" in attrs else (2, 3), low=0, high=1)], attrs),
       ("as drawn", "ties"))
      for attrs in ({"preserve_shape": True, "normalization": "batch"}, {"multi_output": True, "smooth_alpha": 0.3},
                    {"multi_output": True, "preserve_shape": True, "normalization": "batch"},
                    {"preserve_shape": True, "out_grad": True})),
]


def test_rows_cover_every_pair() -> None:
    values = {"a": "12", "b": "123", "c": "12", "d": "1234"}
    rows = list(covering(values))
    for first, second in combinations(values, 2):
        assert {(row[first], row[second]) for row in rows} == set(product(values[first], values[second]))
    assert len(rows) < 2 * 3 * 4


def test_options_are_those_of_the_registry() -> None:
    assert options("Pooling")["pool_type"] == ("avg", "lp", "max", "sum")
    assert options("SoftmaxOutput")["out_grad"] == ("False", "True")


@pytest.mark.parametrize(("name", "case", "points"), SAMPLE, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(SAMPLE)])
def test_kinds_of_faults(name: str, case: Case, points: tuple[str, ...]) -> None:
    before = seen["compared"]
    assert not [str(found) for found in differences(BY_NAME[name], case, points)]
    assert seen["compared"] > before


@pytest.mark.slow
@pytest.mark.parametrize("record", SWEPT, ids=lambda record: record.name)
def test_every_pair_of_options_at_every_point(record: Record) -> None:
    before = seen["compared"]
    found = [str(one) for case in applications(record, DRAWS) for one in differences(record, case, tuple(POINTS))]
    assert not found, "\n".join(found[:20])
    assert seen["compared"] > before
