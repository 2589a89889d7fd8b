"""The registry of all kernels that Numba compiles; what they take says `targets/cpu/params`.

A kernel is a plain Python function `(tensors, ints, floats, begin, end)` that Numba can compile. It runs the
tasks `[begin, end)` of its own flat numbering and may assume nothing about which other tasks run, where or
when; the result must not depend on how the tasks are split. It never allocates and never raises.

An elementwise kernel is made from a *scalar expression*, kept in `expression`, so that code generation can
inline the very same definition into a fused loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ngraph_mxnet.base import registry

__all__ = ["ALL_KERNELS", "KernelRecord", "kernel", "register", "symbol"]


@dataclass(frozen=True, kw_only=True)
class KernelRecord:
    """One kernel. Its docstring says what it computes, and of which tensors; `targets/cpu/params` has the names."""

    name: str
    function: Callable[..., None]
    doc: str
    expression: Callable | None = None
    """Scalar definition: the inputs' elements, then the parameters of `floats`, to the output's element."""
    inputs: tuple[str, ...] = ()
    """Element type of each input of an elementwise kernel, e.g. `("f32", "f32")`."""
    output: str = ""
    """Element type of an elementwise kernel's output."""
    parameters: int = 0
    """Entries of `floats` that `expression` takes."""
    loops: str = "full"
    """An elementwise kernel's fast paths: `moving` (most), `full`, `contiguous` (fewer) or `strided` (none)."""

    @property
    def family(self) -> str:
        """The module that defines it; the kernels of a family are compiled into one object."""
        return "elementwise" if self.expression is not None else self.function.__module__.rpartition(".")[2]


ALL_KERNELS: dict[str, KernelRecord] = {}
"""Every kernel by name, in order of registration."""


def register(record: KernelRecord) -> KernelRecord:
    """Add a record. Raises ValueError if the name is taken."""
    if record.name in ALL_KERNELS:
        raise ValueError(f"the kernel {record.name!r} is registered twice")
    ALL_KERNELS[record.name] = record
    registry.note_outside(record.function)
    return record


def kernel(name: str) -> Callable[[Callable], Callable]:
    """Register the decorated function as kernel `name`; its docstring documents the operands."""

    def decorate(function: Callable) -> Callable:
        register(KernelRecord(name=name, function=function, doc=function.__doc__ or ""))
        return function

    return decorate


def symbol(name: str, isa: str) -> str:
    """The C symbol of a kernel in the kernel library.

    >>> symbol("relu", "avx2")
    'ng_relu__avx2'
    """
    return f"ng_{name}__{isa}"
