"""Tables of facts about a program's objects. The tables lie beside the objects, where neither `vars` nor a copy or a
pickle finds them."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar, overload

Kept = TypeVar("Kept")


class SideTable(Generic[Kept]):
    """By the objects' identity, so that their own `__eq__` and `__hash__` don't matter.

    What is kept of an object goes when that goes. It must not refer to the object, or neither ever would: nor to its
    parameters, which may know a trainer, which may know the object.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Kept] = {}
        """By `id`, for who has the object in hand."""
        self._alive: dict[int, weakref.ref[Any]] = {}

    def get(self, owner: Any) -> Kept | None:
        return self.by_id.get(id(owner))

    def get_or_put(self, owner: Any, kept: Kept) -> Kept:
        """Return what is kept of the owner. If nothing was kept, keep `kept` from now on."""
        number = id(owner)
        found = self.by_id.setdefault(number, kept)
        if found is kept:
            def forget(_: Any, alive: Any = self._alive, by_id: Any = self.by_id) -> None:
                alive.pop(number, None)
                by_id.pop(number, None)

            self._alive[number] = weakref.ref(owner, forget)
        return found


class Beside(Generic[Kept]):
    """An attribute of a class's objects that stands beside them; AttributeError where it was not set."""

    def __init__(self) -> None:
        self._values: SideTable[list[Kept]] = SideTable()

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Beside[Kept]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Kept: ...

    def __get__(self, instance: object | None, owner: type) -> Beside[Kept] | Kept:
        if instance is None:
            return self
        found = self._values.by_id.get(id(instance))
        if found is None:
            raise AttributeError(f"{owner.__name__} has no {self._name}")
        return found[0]

    def __set__(self, instance: object, value: Kept) -> None:
        self._values.get_or_put(instance, [value])[0] = value


class OfBlock:
    """The facts remembered of a Gluon block. An attribute is None where there is no such fact.

    Attributes:
        bodies: a `CompiledBodies`.
        held: a `HeldCachedOp` around the block's own cached op.
        training: a `GluonTraining`.
        trained, quick: the short ways of recorded calls and of others (see `quick_call`).
        loss: a `LossTraining`.
        recorded: the block's own cached op, if MXNet has recorded a call of it whose writes it does not count.
    """

    __slots__ = ("bodies", "held", "loss", "quick", "recorded", "trained", "training")

    def __init__(self) -> None:
        self.bodies: Any = None
        self.held: Any = None
        self.training: Any = None
        self.trained: Any = None
        self.quick: Any = None
        self.loss: Any = None
        self.recorded: Any = None


blocks: SideTable[OfBlock] = SideTable()


def of_block(block: Any) -> OfBlock:
    """Made if need be."""
    return blocks.get(block) or blocks.get_or_put(block, OfBlock())
