"""Applications of an operator with every pair of values of its options, as MXNet's registry lists them.

A drawn case of the operator's record gives the shapes and what must fit them; the options are laid over it. What MXNet
then refuses is no application.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mxnet_registry import Parameter, operator
from records import Case, Record

Options = dict[str, str]
_ATTEMPTS, _BYTES = 8, 1 << 12
"""For each case that is wanted, and for each of them."""
_DRAWN_ONLY = {"cudnn_off", "cudnn_tune", "cudnn_algo_verbose", "cudnn_algo_bwd_data_prec", "ctx", "workspace",
               "layout", "storage_type", "stype", "dtype", "out_type", "out_dtype", "is_int", "output_mean_var",
               "use_sequence_length", "use_length"}
"""What a CPU does not read, and what the draws of records vary: types of results, and inputs of lengths."""
_NUMBERS = {
    "float": ("0", "0.5", "3"), "float or None": ("None", "0.5"),
    "double": ("0", "0.5", "-1", "2", "3"), "double or None": ("None", "0", "2"),
}
_KEPT_WITHIN = {"p": (), "eps": ("0.1",), "epsilon": ("0.1",), "momentum": (), "temperature": ("0.5", "3"),
                "a_min": (), "a_max": (), "nms_threshold": (), "overlap_thresh": ()}
"""Numbers that have a range of their own, in place of the above."""


def options(op: str) -> dict[str, tuple[str, ...]]:
    """By parameter, the values to try: both of a boolean, all of an enumeration, some of a number."""
    found = {parameter.name: _values(parameter) for parameter in operator(op).parameters
             if not parameter.is_tensor and parameter.name not in _DRAWN_ONLY}
    return {name: values for name, values in found.items() if len(values) > 1}


def _values(parameter: Parameter) -> tuple[str, ...]:
    if parameter.choices:
        return tuple(value for value in parameter.choices if value != "bfloat16")
    if parameter.kind.startswith("boolean"):
        return "False", "True"
    numbers = _KEPT_WITHIN.get(parameter.name, _NUMBERS.get(parameter.kind, ()))
    if not numbers:
        return ()
    return tuple(dict.fromkeys([*([] if parameter.default is None else [parameter.default]), *numbers]))


def covering(values: Mapping[str, Sequence[str]]) -> Iterator[Options]:
    """Rows in which every pair of values of two parameters stands together in at least one, greedily few."""
    names = list(values)
    if len(names) < 2:
        yield from ({name: value} for name in names for value in values[name])
        return
    missing = {frozenset([(first, a), (second, b)]) for first, second in combinations(names, 2)
               for a, b in product(values[first], values[second])}
    while missing:
        row = dict(sorted(min(missing, key=sorted)))
        for name in names:
            if name not in row:
                row[name] = max(values[name], key=lambda value, name=name: sum(  # type: ignore[misc]
                    frozenset([(name, value), other]) in missing for other in row.items()))
        missing -= {frozenset(pair) for pair in combinations(row.items(), 2)}
        yield row


def drawn(record: Record, count: int, number: int = 0) -> list[Case]:
    """Distinct cases of the record, always the same of a number, the simplest first; floats in float32."""
    found: dict[str, Case] = {}

    @settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        case = record.case(data.draw)
        narrow = [replace(operand, dtype="float32") if operand.dtype in ("float16", "float64") else operand
                  for operand in case.operands]
        case = replace(case, operands=narrow)
        found.setdefault(repr(case), case)

    # From bytes: what Hypothesis draws by itself depends on what was imported before, whose constants it tries.
    rng = np.random.default_rng(number)
    for attempt in range(_ATTEMPTS * count):
        if len(found) < count:
            collect.hypothesis.fuzz_one_input(rng.bytes(_BYTES) if attempt else bytes(_BYTES))
    return list(found.values())


def applications(record: Record, count: int) -> Iterator[Case]:
    """Drawn cases as they are; then their options pair by pair, over one after the other."""
    cases = drawn(record, count)
    yield from cases
    plain = [case for case in cases if case.symbol is None and not case.body]
    if not plain:
        return
    for number, row in enumerate(covering(options(record.op))):
        case = plain[number % len(plain)]
        attrs: dict[str, Any] = {**case.attrs, **row}
        yield replace(case, attrs=attrs)
