"""What has to be the same on all ranks of a job, and the sentence that says where it is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class Tensor(NamedTuple):
    """An array that ranks exchange, by its key; `element` is its NumPy dtype's name, `storage` MXNet's for how it is
    stored: default, which is dense, or row_sparse."""

    key: str
    shape: tuple[int, ...]
    element: str
    storage: str = "default"


@dataclass(frozen=True)
class RankFacts:
    """Of one rank, as plain data. `tensors` are in the order in which the ranks exchange them."""

    rank: int
    versions: Mapping[str, str] = field(default_factory=dict)
    """By package."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Those on which what is computed or exchanged depends, by variable."""
    operation: str = ""
    """What the rank asks of the others: broadcast, pushpull, barrier."""
    tensors: Sequence[Tensor] = ()
    optimizer: str = ""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As `from_json` reads it."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> RankFacts:
        """Of `to_json`."""
        fields = json.loads(text)
        tensors = tuple(Tensor(key, tuple(shape), *others) for key, shape, *others in fields.pop("tensors"))
        return RankFacts(tensors=tensors, **fields)


_Values = dict[int, Any]
"""By rank; None where a rank has none."""


def describe_mismatch(mine: RankFacts, others: Iterable[RankFacts]) -> str | None:
    """Where these ranks differ first, which ranks are on each side, and what to do; None where they don't.

    All ranks get the same sentence. What differs for one reason is compared first: versions, settings, what is asked,
    then keys, shapes, dtypes, storage types and order of the arrays, and the optimizer.
    """
    everyone = sorted([mine, *others], key=lambda facts: facts.rank)
    for what, values, advice in _compared(everyone):
        sides: dict[Any, list[int]] = {}
        for rank, value in values.items():
            sides.setdefault(json.dumps(value), []).append(rank)
        if len(sides) > 1:
            found = ", ".join(f"{_text(json.loads(value))} on {_ranks(ranks)}" for value, ranks in sides.items())
            return f"{what} is not the same on all ranks: {found}; {advice}"
    return None


def _compared(everyone: Sequence[RankFacts]) -> Iterator[tuple[str, _Values, str]]:
    """What, its values, and what to do if they differ."""
    for name, values in _by_name(everyone, lambda facts: facts.versions):
        yield f"the version of {name}", values, "install the same on all machines"
    for name, values in _by_name(everyone, lambda facts: facts.settings):
        yield f"the setting {name}", values, "give all ranks the same environment (OpenMPI: mpirun -x NAME)"
    yield ("what the store is asked for", {facts.rank: facts.operation for facts in everyone},
           "all ranks have to run the same script, with calls of the store in the same order")
    advice = "build the same model on all ranks, from the same arguments"
    shapes = _by_name(everyone, lambda facts: {tensor.key: list(tensor.shape) for tensor in facts.tensors})
    elements = _by_name(everyone, lambda facts: {tensor.key: tensor.element for tensor in facts.tensors})
    storages = _by_name(everyone, lambda facts: {tensor.key: tensor.storage for tensor in facts.tensors})
    for key, values in shapes:
        yield f"the shape of {key}", values, advice
    for key, values in elements:
        yield f"the dtype of {key}", values, advice
    for key, values in storages:
        yield f"the storage type of {key}", values, advice
    yield ("the order of parameters", {facts.rank: [tensor.key for tensor in facts.tensors] for facts in everyone},
           f"{advice}, and create its layers in the same order")
    yield "the optimizer", {facts.rank: facts.optimizer for facts in everyone}, "give all ranks the same optimizer"
    for name, values in _by_name(everyone, lambda facts: facts.hyperparameters):
        yield f"the optimizer's {name}", values, "give all ranks the same optimizer, with the same arguments"


def _by_name(
    everyone: Sequence[RankFacts], of: Callable[[RankFacts], Mapping[str, Any]]
) -> Iterator[tuple[str, _Values]]:
    named = {facts.rank: of(facts) for facts in everyone}
    for name in dict.fromkeys(name for values in named.values() for name in values):
        yield name, {rank: values.get(name) for rank, values in named.items()}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(str, value))})"
    return "nothing" if value is None else str(value)


def _ranks(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 0, 2 and 3`."""
    names = [str(rank) for rank in ranks]
    return f"rank {names[0]}" if len(names) == 1 else f"ranks {', '.join(names[:-1])} and {names[-1]}"
