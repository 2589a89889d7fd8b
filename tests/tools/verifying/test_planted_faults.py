"""A planted fault is named by `verify` at the right node: one weight of one layer, or one node that a backend computes
wrong."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
from planted_faults import BACKEND, LARGE, SMALL, Found, Subject, kernel_faults, partitioned, weight_faults

import ngraph_mxnet

FAULTS = (weight_faults, kernel_faults)
Faults = Callable[..., Found]


@pytest.fixture(autouse=True)
def faulty(register: Callable[[str, str], None]) -> None:
    register(BACKEND, "planted_faults:FaultyBackend")


def check(subject: Subject, faults: Faults, count: int, seed: int, **options: Any) -> None:
    planted = list(islice(faults(subject, np.random.default_rng(seed), **options), count))
    assert len(planted) == count
    for origins, found in planted:
        assert found.diverging is not None, (origins, found.unnamed)
        assert found.diverging.origin in origins
        assert found.diverging.computes_wrong and not found.diverging.whole.agrees
        assert all(operand.difference.agrees for operand in found.diverging.operands)
        assert bool(found.diverging.differing) == (faults is weight_faults)


@pytest.mark.parametrize("against", [None, "interpreter"])
@pytest.mark.parametrize("faults", FAULTS, ids=lambda faults: faults.__name__)
@pytest.mark.parametrize("make", SMALL, ids=lambda make: make.__name__)
def test_the_node_is_named(make: Callable[[], Subject], faults: Faults, against: str | None) -> None:
    if make is partitioned and against is not None:
        with pytest.raises(ngraph_mxnet.NGraphError, match="the interpreter runs whole models only"):
            check(make(), faults, 2, 3, against=against)
    else:
        check(make(), faults, 2, 3, against=against)


@pytest.mark.slow
@pytest.mark.parametrize("faults", FAULTS, ids=lambda faults: faults.__name__)
@pytest.mark.parametrize("make", [*SMALL, *LARGE], ids=lambda make: make.__name__)
def test_the_node_is_named_at_twenty_places(make: Callable[[], Subject], faults: Faults) -> None:
    check(make(), faults, 20, 4)
