"""The parameters of kernels, declared once and by name; importing this module needs no compiler.

All that knows a kernel's parameters asks its record: the kernel reads them by name (`kernels.pointers.reader`), the
lowering fills them by name, what comes from disk is held against it, and dumps print the names.
"""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from math import prod
from typing import Any

from ngraph_mxnet.ir.sizes import greatest, is_symbolic, least, number

Span = tuple[str, int, int]
"""An operand; its first byte, from where it points, and one past its last."""

BLOCK = 16
"""Channels in a block."""
PIXEL = 4 * BLOCK
"""Bytes of a block's pixel, in float32."""
GRAIN = 8192
"""Elements in a task of an elementwise kernel: some microseconds of work."""
ALIGNMENT = 64
"""Bytes to which memory of our own is aligned, and operands that a kernel wants aligned."""
SLACK = 64
"""Bytes behind memory of our own that may be touched: a kernel's last vector."""


class Params:
    """The numbers of a call, filled by name."""

    def __init__(self, record: Kernels, ints: Iterable[int], floats: Iterable[float]) -> None:
        self.record, self._floats = record, list(floats)
        self._ints = [i if type(i) is int else number(i) for i in ints]
        self._tasks: int | None = None

    def ints(self) -> list[int]:
        """The ints, in the kernel's order."""
        return self._ints

    def floats(self) -> list[float]:
        """The floats, in the kernel's order."""
        return self._floats

    def followed_by(self, ints: Iterable[int] = (), floats: Iterable[float] = ()) -> Params:
        """These numbers, and behind them further ones that have no names; see `more` of `Kernels`."""
        return Params(self.record, (*self._ints, *ints), (*self._floats, *floats))

    def with_floats(self, numbers: Mapping[str, float]) -> Params:
        """The same but for some floats, by name.

        Raises:
            TypeError: there is no such float.
        """
        if not numbers.keys() <= set(self.record.floats):
            raise TypeError(f"found floats {', '.join(numbers)}, expected some of {', '.join(self.record.floats)}")
        floats = [numbers.get(name, own) for name, own in zip(self.record.floats, self._floats, strict=True)]
        found = Params(self.record, (), floats)
        found._ints, found._tasks = self._ints, self.tasks
        return found

    @property
    def tasks(self) -> int:
        """How many tasks the call has."""
        if self._tasks is None:
            self._tasks = self.record.tasks_of(self._ints)
        return self._tasks


class Kernels:
    """The record of a kernel, or of several that take the same; called with a number for each name it gives `Params`.

    The functions `tasks`, `reach`, `more` and `aligned` get the ints of a call as a named tuple. For the runtime
    library they run on symbols in place of ints (`targets.cpu.checks`), so they use arithmetic, comparisons and `&`
    alone: no `min` or `max`, no ints as keys. Each condition doubles what the library holds of them, unless one side
    raises.

    Args:
        kernels: the kernels' names. As a mapping, each name has the bytes of an element, which `reach` gets (else 4).
        tensors: the operands in order; `>name` is written, `name?` may be left out.
        ints, floats: names in order; the first `sizes` of the ints count something and are at least 1. `name(a b)` is a
            group, which a call gets as one sequence and everybody reads as `p.name.a`. A group with an operand's name
            holds its strides.
        tasks: gives the number of tasks.
        reach: gives the bytes of each operand that a call touches, from the ints and the bytes of an element. They
            must not depend on what is in the operands, other than in those that `keeps` names. It may raise ValueError
            for numbers that no lowering gives.
        keeps: operands in which a call stores numbers that it reads again and relies on, so that nothing else may write
            there meanwhile.
        more: gives the numbers of ints and floats without names that follow those with names.
        aligned: gives the operands that must be aligned to `ALIGNMENT`, in memory that is.
        needs: CPU features, by LLVM's names, without which the kernels do not run. Such kernels are avx512's alone.
        elements: the element types of operands, as `input:u8 output:f32`; a mapping by kernel, or a function of the
            kernel and its ints, where they differ. `b2` is any type of two bytes. Of others nothing is told.
    """

    def __init__(self, kernels: str | Mapping[str, int], *, tensors: str, ints: str, sizes: int,
                 tasks: Callable[[Any], int], reach: Callable[[Any, Any], list[Span]], floats: str = "",
                 keeps: str = "", more: Callable[[Any], tuple[int, int]] | None = None,
                 aligned: Callable[[Any], Sequence[str]] | None = None, needs: Sequence[str] = (),
                 elements: str | Mapping[str, str] | Callable[[str, Sequence[int]], str] = "") -> None:
        marked = tensors.split()
        self.tensors = tuple(name.strip(">?") for name in marked)
        self.written = tuple(name.strip(">?") for name in marked if name[0] == ">")
        self.optional = tuple(name.strip(">?") for name in marked if name[-1] == "?")
        self.reads = tuple(name for name in self.tensors if name not in self.written)
        self.all = frozenset(self.tensors)
        self.required = self.all.difference(self.optional)
        self.groups = {name: tuple(members.split()) for name, members in re.findall(r"(\w+)(?:\((.*?)\))?", ints)}
        """The members of each name of `ints`; none of a single number."""
        self.ints = tuple(f"{name}.{member}" if member else name
                          for name, members in self.groups.items() for member in members or ("",))
        self.floats, self.sizes = tuple(floats.split()), sizes
        self.tasks, self.reach, self.keeps, self.more, self.aligned = tasks, reach, tuple(keeps.split()), more, aligned
        self.needs = tuple(needs)
        self.element_bytes = dict.fromkeys(kernels.split(), 4) if isinstance(kernels, str) else dict(kernels)
        self._elements_of = elements if callable(elements) else None
        self._elements = {} if callable(elements) else {
            name: _by_operand(elements if isinstance(elements, str) else elements[name]) for name in self.element_bytes}
        for name in self.element_bytes:
            if name in KERNELS:
                raise ValueError(f"the kernel {name!r} is declared twice")
            KERNELS[name] = self

    @cached_property
    def _tuple(self) -> Any:
        return named(tuple(self.groups))

    @cached_property
    def _parts(self) -> list[tuple[Any, Callable[[Iterable[Any]], Sequence[Any]] | None]]:
        """Where the numbers of each name stand among the ints, and what makes the tuple of a group."""
        found, at = list[Any](), 0
        for members in self.groups.values():
            found.append((slice(at, at + len(members)), named(members)._make) if members else (at, None))
            at += len(members) or 1
        return found

    def read(self, ints: Sequence[Any]) -> Any:
        """The ints as a named tuple, with one for each group."""
        return self._tuple._make([ints[at] if make is None else make(ints[at]) for at, make in self._parts])

    def flat(self, numbers: Sequence[Any]) -> list[Any]:
        """The ints in order, of what `read` gives or of a sequence for each group."""
        return [each for number, (_, make) in zip(numbers, self._parts, strict=True)
                for each in ((number,) if make is None else make(number))]

    def elements(self, kernel: str, ints: Sequence[int]) -> Mapping[str, str]:
        """The element types of the kernel's operands, by operand."""
        of = self._elements_of
        return self._elements[kernel] if of is None else _by_operand(of(kernel, ints))

    def is_for(self, isa: str) -> bool:
        """True if the instruction set has the kernels."""
        return not self.needs or isa == "avx512"

    def tasks_of(self, ints: Sequence[int]) -> int:
        return self.tasks(self.read(ints))

    def text(self, ints: Sequence[int], floats: Sequence[float]) -> str:
        """The numbers as `name=number`; those without names follow."""
        pairs = [(self.ints, ints), (self.floats, floats)]
        named = [f"{name}={value}" for names, numbers in pairs for name, value in zip(names, numbers, strict=False)]
        return " ".join((*named, *(str(value) for names, numbers in pairs for value in numbers[len(names):])))

    def __call__(self, **numbers: Any) -> Params:
        """Raises TypeError for a name that is missing or unknown, and for a group of another size."""
        try:
            floats = [numbers.pop(name) for name in self.floats]
            return Params(self, self.flat(self._tuple(**numbers)), floats)
        except (KeyError, TypeError) as error:
            raise TypeError(f"parameters of {next(iter(self.element_bytes))}: {error}") from error


KERNELS: dict[str, Kernels] = {}
"""Every kernel of the kernel library, by its name without the instruction set."""


@cache
def _by_operand(text: str) -> Mapping[str, str]:
    return dict(part.split(":") for part in text.split())


@cache
def named(names: tuple[str, ...]) -> Any:
    """A type of named tuples."""
    return namedtuple("_Numbers", names)


def by_name(names: str | Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    """The numbers, or operands, under these names."""
    return dict(zip(names.split() if isinstance(names, str) else names, values, strict=True))


def axes(sizes: Iterable[int], strides: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Pairs (how many, stride)."""
    return zip(sizes, strides, strict=True)


def span(operand: str, size: int, *axes: tuple[int, int], last: int = 1) -> Span:
    """The bytes of elements of `size` bytes each along `axes`, whose strides are in elements.

    At every place of the axes lie `last` contiguous elements.
    """
    reach = [(count - 1) * stride for count, stride in axes]
    return (operand, size * sum(map(_below, reach)), size * (sum(map(_above, reach)) + last))


def _below(reach: int) -> int:
    return least(reach, 0) if is_symbolic(reach) else reach * (reach < 0)


def _above(reach: int) -> int:
    return greatest(reach, 0) if is_symbolic(reach) else reach * (reach > 0)


def whole(operand: str, size: int, *counts: int) -> Span:
    """The bytes of a contiguous tensor of these sizes, whose elements have `size` bytes."""
    return operand, 0, size * prod(counts)


def operand_span(p: Any, operand: str, size: int, *sizes: int, last: int = 1) -> Span:
    """`span` of `sizes` by the strides of the operand's group."""
    return span(operand, size, *axes(sizes, getattr(p, operand)), last=last)


def image_span(p: Any, operand: str, size: int, *sizes: int) -> Span:
    """The same for blocked images, where a pixel is 16 elements; pixels without a stride are neighbours."""
    strides = getattr(p, operand)
    return span(operand, size, *axes(sizes, (*strides, *[BLOCK] * (len(sizes) - len(strides)))), last=BLOCK)


def numbered(names: str) -> dict[str, int]:
    return {name: place for place, name in enumerate(names.split())}
