"""What a script replaces, on a block, its class, a base class, in a parameter or a list, counts as MXNet counts it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mxnet_helpers import backend, mx, needs_library

from mxnet import autograd, gluon  # isort: skip  # the helpers make it importable
from mxnet.gluon import nn  # isort: skip

pytestmark = needs_library

WIDTH = 4
MISSING = object()
METHODS = ("forward", "hybrid_forward", "_call_cached_op", "__call__")


def values(*shape: int, seed: int) -> mx.nd.NDArray:
    return mx.nd.array(np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32))


class Session:
    """A net, what was done to it, and what it gave."""

    def __init__(self) -> None:
        class Base(nn.HybridSequential):
            pass

        class Net(Base):
            pass

        class Other(Base):
            pass

        self.net = Net(prefix="net_")
        with self.net.name_scope():
            self.net.add(self.layer(0), self.layer(1), self.layer(2))
        self.other, self.kinds = Other, (Net, Base, nn.HybridSequential, nn.HybridBlock, gluon.Block)
        self.net.hybridize()
        self.events: list[Any] = []
        self.undo: list[Callable[[], Any]] = []

    @staticmethod
    def layer(seed: int) -> nn.Dense:
        layer = nn.Dense(WIDTH, in_units=WIDTH, activation="tanh", prefix=f"dense{seed}_")
        layer.initialize()
        layer.weight.set_data(values(WIDTH, WIDTH, seed=seed))
        return layer

    def parameters(self) -> list[gluon.Parameter]:
        return [*self.net.collect_params().values()]

    def calls(self, times: int, rows: int) -> None:
        for number in range(times):
            found = self.net(values(rows, WIDTH, seed=number))
            self.events.append(found.asnumpy())

    def steps(self, times: int) -> None:
        for number in range(times):
            with autograd.record():
                loss = self.net(values(3, WIDTH, seed=number)).sum()
            loss.backward()
            self.events += [loss.asnumpy()]
            self.events += [each.grad().asnumpy() for each in self.parameters() if each._grad is not None]

    def replaced(self, owner: Any, name: str, how: str) -> None:
        """Put another function in the place of one, which goes again at the end, or before."""
        before = vars(owner).get(name, MISSING)
        stock = getattr(owner, name)
        is_class = isinstance(owner, type)

        def function(*args: Any, **kwargs: Any) -> Any:
            self.events.append((name, how))
            found = stock(*args, **kwargs)
            return found * 2 if how == "doubled" and hasattr(found, "__mul__") else found

        def undo() -> None:
            if before is MISSING:
                if vars(owner).get(name) is function:
                    (type.__delattr__ if is_class else object.__delattr__)(owner, name)
            else:
                setattr(owner, name, before)

        (setattr if is_class else object.__setattr__)(owner, name, function)
        self.undo.append(undo)

    def called(self, name: str) -> int:
        """How often a function was that `replaced` has put there."""
        return sum(type(event) is tuple and event[0] == name for event in self.events)

    def hook(self, how: str) -> None:
        def seen(*args: Any) -> None:
            self.events.append(how)

        hooks = self.net._forward_hooks if "after" in how else self.net._forward_pre_hooks
        if "dict" in how:
            hooks[7] = seen
            self.undo.append(lambda: hooks.pop(7, None))
        else:
            register = self.net.register_forward_hook if "after" in how else self.net.register_forward_pre_hook
            self.undo.append(register(seen).detach)

    def another_array(self, how: str, number: int) -> None:
        # Where no gradient by a weight is wanted, MXNet forgets its bias's.
        parameter = self.parameters()[number % 6 if how in ("set_data", "data", "class", "swap") else number % 6 | 1]
        array = parameter.data() * 0.5 + 0.25
        if how == "set_data":
            parameter.set_data(array)
        elif how == "item":
            parameter._data[0] = array
        elif how == "list":
            parameter._data = [array]
        elif how == "dict":
            parameter.__dict__["_data"] = [array]
        elif how == "data":
            self.replaced(parameter, "data", "doubled")
        elif how == "class":
            self.replaced(gluon.Parameter, "data", "doubled")
        elif how == "request":
            parameter.grad_req = "null" if parameter.grad_req == "write" else "write"
        else:
            arguments = self.net._cached_op_args
            places = [place for place, (is_input, found) in enumerate(arguments)
                      if not is_input and len(found.shape) == 2]
            if places:
                arguments[places[0]], arguments[places[-1]] = arguments[places[-1]], arguments[places[0]]

    def do(self, chance: random.Random) -> None:
        """One thing that a script may do."""
        action = chance.choice(["replace", "replace", "replace", "undo", "undo", "hook", "array", "array", "child",
                                "class", "hybridize"])
        self.events.append(action)
        if action == "replace":
            name, how = chance.choice(METHODS), chance.choice(["seen", "doubled"])
            owner = chance.choice([self.net, self.net, *(kind for kind in self.kinds if hasattr(kind, name))])
            self.events.append(f"{name} of {getattr(owner, '__name__', 'the block')}, {how}")
            self.replaced(owner, name, how)
        elif action == "undo":
            while self.undo:
                self.undo.pop()()
        elif action == "hook":
            self.hook(chance.choice(["before", "after", "before, in the dict", "after, in the dict"]))
        elif action == "array":
            how = chance.choice(["set_data", "item", "list", "dict", "data", "class", "request", "swap"])
            self.events.append(how)
            self.another_array(how, chance.randrange(6))
        elif action == "child":
            place = chance.randrange(3)
            if chance.random() < 0.5:
                self.net._children[str(place)] = self.layer(len(self.events))
            else:
                self.net.register_child(self.layer(len(self.events)), str(place))
        elif action == "class":
            self.net.__class__ = self.other if type(self.net) is self.kinds[0] else self.kinds[0]
        else:
            self.net.hybridize(chance.random() < 0.8)

    def run(self, seed: int, number: int) -> list[Any]:
        chance = random.Random(seed)
        try:
            if chance.random() < 0.7:
                self.calls(3, 2)
            for _ in range(number):
                self.do(chance)
                try:
                    if chance.random() < 0.7:
                        self.calls(chance.choice([1, 2, 4]), chance.choice([2, 2, 2, 3]))
                    else:
                        self.steps(chance.choice([1, 3]))
                except Exception as error:
                    self.events.append(type(error))
        finally:
            while self.undo:
                self.undo.pop()()
        return self.events


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NGRAPH_DIRECT", "1")


def alike(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected), (found, expected)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        if isinstance(other, np.ndarray):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=f"event {number} of {found}")
        else:
            assert one == other, f"event {number} of {found}, expected {expected}"


@pytest.mark.parametrize("seed", range(24))
def test_scripts_of_any_kind(seed: int, short: list[bool]) -> None:
    with backend(None):
        expected = Session().run(seed, 10)
    with backend("NGRAPH"):
        session = Session()
        alike(session.run(seed, 10), expected)


@pytest.mark.parametrize("owner", ["block", "Net", "Base", "HybridSequential", "HybridBlock", "Block"])
@pytest.mark.parametrize("name", METHODS)
def test_the_short_way_comes_back(name: str, owner: str, short: list[bool]) -> None:
    with backend("NGRAPH"):
        session = Session()
        place = {kind.__name__: kind for kind in session.kinds}.get(owner, session.net)
        if not hasattr(place, name):
            return
        session.calls(3, 2)
        session.steps(3)
        del short[:], session.events[:]
        session.replaced(place, name, "seen")
        session.calls(1, 2)
        session.steps(1)
        shadowed = name == "hybrid_forward" or (name, owner) in (("__call__", "block"), ("forward", "Block"))
        assert session.called(name) == (0 if shadowed else 2)
        session.undo.pop()()
        del short[:], session.events[:]
        session.calls(2, 2)
        session.steps(2)
    assert short[-1] and short.count(True) >= 2 and not session.called(name)


def test_what_is_watched_of_parameters_costs_no_short_way(short: list[bool]) -> None:
    with backend("NGRAPH"):
        session = Session()
        session.calls(3, 2)
        del short[:]
        session.net.counted = 0
        for parameter in session.parameters():
            parameter.note = "of the program's"
            session.net.counted += 1
            type(session.net).counted_by_class = session.net.counted
            session.calls(1, 2)
    assert short == [True] * 6
