"""Every operator of the installed MXNet has a rule, stays with it for a told reason, or has no meaning at inference."""

from __future__ import annotations

import ctypes

import ngraph_mxnet  # noqa: F401  (makes mxnet importable on current NumPy)

# isort: split
from families import RECORDS
from mxnet.base import _LIB, check_call, py_str

from ngraph_mxnet.frontends.mxnet.attrs import aliases, canonical
from ngraph_mxnet.frontends.mxnet.rules.registry import LEFT, all_rules, why_left


def _registered() -> dict[str, str]:
    """Each name in MXNet's registry, and the operator's own."""
    count, names = ctypes.c_uint(), ctypes.POINTER(ctypes.c_char_p)()
    check_call(_LIB.MXListAllOpNames(ctypes.byref(count), ctypes.byref(names)))
    table = {}
    for name in [names[i] for i in range(count.value)]:
        handle, own = ctypes.c_void_p(), ctypes.c_char_p()
        check_call(_LIB.NNGetOpHandle(name, ctypes.byref(handle)))
        text, size, lists = ctypes.c_char_p(), ctypes.c_uint(), [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
        check_call(_LIB.NNGetOpInfo(handle, ctypes.byref(own), ctypes.byref(text), ctypes.byref(size),
                                    *map(ctypes.byref, lists), ctypes.byref(text)))
        table[py_str(name)] = py_str(own.value)
    return table


def test_aliases_are_those_of_mxnet() -> None:
    registered = _registered()
    assert {name: canonical(name) for name in registered} == registered
    for own in set(registered.values()):
        theirs = {name for name, target in registered.items() if target == own and name != own}
        assert set(aliases(own)) == {name for name in theirs if not name.startswith("_sparse_")}


def test_every_operator_has_a_rule_or_a_reason() -> None:
    """Gradients' operators aside, which no graph of inference contains."""
    forward = {name for name in _registered().values() if not name.startswith("_backward_")}
    assert not {name for name in forward if name not in all_rules() and why_left(name) is None}


def test_every_rule_is_of_an_operator_and_has_a_record() -> None:
    rules = set(all_rules())
    assert rules <= set(_registered().values())
    assert not rules - {record.op for record in RECORDS}
    assert not rules & set(LEFT)
