"""Which kinds of recorded calls are compiled at which visit, and how many are kept."""

from __future__ import annotations

import random
from dataclasses import dataclass

import mxnet_helpers  # noqa: F401  # makes MXNet importable

from ngraph_mxnet.plugin.binding.gluon_blocks import AS_LARGE, AT_ONCE, MOST_BYTES, MOST_KINDS, Kinds


@dataclass(frozen=True)
class Saving:
    saved_bytes: int
    was_compiled: bool = True


def test_every_kind_is_compiled_at_its_third_visit_at_the_latest() -> None:
    kinds: Kinds[int] = Kinds()
    visits: dict[int, int] = {}
    compiled_at: dict[int, int] = {}
    for kind in random.Random(1).choices(range(100), k=2000):
        visits[kind] = visits.get(kind, 0) + 1
        if kinds.get_or_make(kind, lambda kind=kind: kind) is not None:  # type: ignore[misc]
            compiled_at.setdefault(kind, visits[kind])
    turns = list(compiled_at.values())
    assert len(turns) == 100 and max(turns) == 3
    assert turns[:AT_ONCE] == [1] * AT_ONCE
    assert kinds.values() != [] and len(kinds.values()) == 100, "all are kept"


def test_what_is_kept_is_bounded_by_number_and_by_memory() -> None:
    kinds: Kinds[Saving] = Kinds()
    for kind in range(2 * MOST_KINDS):
        kinds.put(kind, Saving(1))
    assert len(kinds.values()) == MOST_KINDS
    for kind in range(2 * AS_LARGE):
        kinds.put(("large", kind), Saving(MOST_BYTES))
    assert kinds.values() == [Saving(MOST_BYTES)] * AS_LARGE
    kinds.put("small", Saving(1))
    assert sum(one.saved_bytes for one in kinds.values()) <= AS_LARGE * MOST_BYTES
    assert kinds.values()[-1] == Saving(1)


def test_kinds_that_take_no_time_to_make_are_made_at_once() -> None:
    kinds: Kinds[Saving] = Kinds()
    for kind in range(50):
        assert kinds.get_or_make(kind, lambda kind=kind: Saving(0, kind < 2)) is not None  # type: ignore[misc]
