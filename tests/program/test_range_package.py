"""What is compiled for a range of sizes as bytes: what comes back is the same, and what is damaged is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ngraph_mxnet.base.errors import PackageError
from ngraph_mxnet.base.version import __version__
from ngraph_mxnet.ir import Builder, Graph, Value
from ngraph_mxnet.ir.ranges import Guards, assuming
from ngraph_mxnet.ir.sizes import symbol
from ngraph_mxnet.program.backend import get_backend, load_template
from ngraph_mxnet.program.package import Package, pack, seal
from ngraph_mxnet.program.ranges import Template

N, H, T = symbol("N", 1, 32), symbol("H", 2), symbol("T", 1)
rng = np.random.default_rng(0)
WEIGHTS = {shape: rng.standard_normal(shape, np.float32) for shape in ((16, 3, 3, 3), (16, 16, 3, 3), (96, 24), (96,))}


def convolved(of: Callable[[Builder, tuple[int, ...]], Value]) -> Graph:
    b = Builder(name="convolved")
    y = b.relu(b.convolution(b.parameter("x", (N, 3, H, 40)), of(b, (16, 3, 3, 3)), pads_begin=(1, 1), pads_end=(1, 1)))
    y = b.convolution(y, of(b, (16, 16, 3, 3)), strides=(2, 2))
    return b.results(y, b.reduce_mean(y, axes=(2, 3)))


def recurrent(of: Callable[[Builder, tuple[int, ...]], Value]) -> Graph:
    b = Builder(name="recurrent")
    x, states = b.parameter("x", (T, N, 96)), [b.parameter(name, (N, 24)) for name in ("h", "c")]
    node = b.node("rnn", [x, of(b, (96, 24)), of(b, (96,)), *states], {"cell": "lstm", "reverse": True})
    return b.results(*node.outputs)


def constants(b: Builder, shape: tuple[int, ...]) -> Value:
    return b.constant(WEIGHTS[shape])


def parameters(b: Builder, shape: tuple[int, ...]) -> Value:
    return b.weight("_".join(map(str, ("w", *shape))), shape)


def compiled(make: Any, of: Any = constants) -> Template:
    with assuming(Guards({"N": 2, "H": 30, "T": 5})):
        found = get_backend("CPU").template(make(of), {})
    assert found is not None
    return found


def listed(executable: Any) -> tuple[Any, ...]:
    """Its bound Program, with constants as bytes."""
    levels, arena, constants = executable.native.program.listed()
    return levels, arena, [array.tobytes() for array in constants]


SIZES = {convolved: [[(2, 3, 30, 40)], [(32, 3, 17, 40)]], recurrent: [[(5, 2, 96), (2, 24), (2, 24)],
                                                                     [(40, 1, 96), (1, 24), (1, 24)]]}


@pytest.mark.parametrize("make", SIZES)
def test_what_comes_back_makes_the_same_programs(make: Any) -> None:
    template = compiled(make)
    content = template.package().to_bytes()
    package = Package.from_bytes(content)
    again = load_template(package)
    assert [(str(guard), guard.why) for guard in again.guards] == [(str(guard), guard.why) for guard in template.guards]
    assert list(map(str, again.inputs)) == list(map(str, template.inputs))
    for shapes in SIZES[make]:
        one, other = template.bind(shapes), again.bind(shapes)
        assert one is not None and other is not None
        assert listed(one) == listed(other)
        arrays = [rng.standard_normal(shape, np.float32) for shape in shapes]
        for found, expected in zip(other(*arrays), one(*arrays), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert again.bind([(*shape[:-1], shape[-1] + 1) for shape in shapes]) is None
    with pytest.raises(PackageError, match="keep the package itself"):
        again.package()
    assert package.to_bytes() == content


@pytest.mark.parametrize("make", SIZES)
def test_weights_that_are_parameters(make: Any) -> None:
    """They are prepared by whoever loads it, too."""
    template = compiled(make, parameters)
    again = load_template(Package.from_bytes(template.package().to_bytes()))
    shapes = SIZES[make][0]
    arrays = {port.name: rng.standard_normal(shape, np.float32) for port, shape in zip(
        template.inputs, [*shapes, *(port.type.shape for port in template.inputs[len(shapes):])], strict=True)}
    in_order = [arrays[port.name].shape for port in template.inputs]
    for found, expected in zip(again.bind(in_order)(arrays), template.bind(in_order)(arrays), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_sizes_that_it_holds_for() -> None:
    package = Package.from_bytes(compiled(convolved).package().to_bytes())
    assert package.holds({"N": 32, "H": 9}) and not package.holds({"N": 33, "H": 9})
    assert not package.holds({"N": 1, "H": 2})


def test_weights_that_others_have() -> None:
    """A model's file has them already."""
    weights = {f"w{number}": array for number, array in enumerate(WEIGHTS.values())}
    package = compiled(recurrent).package()
    whole, named = package.to_bytes(), package.to_bytes(weights)
    assert len(named) < len(whole) - WEIGHTS[96, 24].nbytes // 2
    shapes = SIZES[recurrent][0]
    one, other = (load_template(Package.from_bytes(content, weights)).bind(shapes)
                  for content in (whole, named))
    assert listed(one) == listed(other)
    with pytest.raises(PackageError, match="is to be given by whoever reads the package"):
        Package.from_bytes(named)


def test_bytes_that_are_damaged() -> None:
    made = compiled(recurrent).package()
    content = made.to_bytes()
    for wrong in (b"", content[:-1], content + b"x", content[:5000] + b"x" + content[5001:], b"x" + content[1:]):
        with pytest.raises(PackageError):
            Package.from_bytes(wrong)
    ours, others = (seal(b"".join(pack({**made.plain(), "version": version}))) for version in (__version__, "0.0"))
    assert ours == content
    with pytest.raises(PackageError, match=r"made by ngraph_mxnet 0\.0, and this is .*: compile the model again"):
        Package.from_bytes(others)


def first(package: Package, place: int, value: Any) -> Package:
    """With something else in place of a part of the first instruction."""
    main = package.code["main"]
    instruction = list(main["instructions"][0])
    instruction[place] = value
    return replace(package, code={**package.code, "main": {**main, "instructions": [instruction,
                                                                                   *main["instructions"][1:]]}})


def changed(package: Package, **parts: Any) -> Package:
    return replace(package, code={**package.code, "main": {**package.code["main"], **parts}})


def test_code_that_is_none_is_refused() -> None:
    """What refers to nothing at once; an instruction that its kernel does not declare so when it is bound."""
    package = Package.from_bytes(compiled(recurrent).package().to_bytes())
    main = package.code["main"]
    for wrong in (first(package, 0, "ng_none__avx2"), first(package, 0, 3), first(package, 1, [[0, 10**6, 0]]),
                  changed(package, steps=[1, 2]), changed(package, steps=main["steps"][:-1]),
                  changed(package, loops=[[0, 0]]), changed(package, guards=[[10**6, 1]]),
                  changed(package, constants=[1]), replace(package, code={}),
                  replace(package, settings={**package.settings, "threads": 0}),
                  replace(package, settings={**package.settings, "more": 0})):
        with pytest.raises(PackageError, match="what is packed does not run here"):
            load_template(wrong)
    kernel, operands, ints, *_ = main["instructions"][0]
    for wrong in (first(package, 1, operands[:-1]), first(package, 2, ints[:-1]), first(package, 4, ints[0])):
        with pytest.raises(ValueError, match=f"instruction '{kernel}'"):
            load_template(wrong).bind(SIZES[recurrent][1])
