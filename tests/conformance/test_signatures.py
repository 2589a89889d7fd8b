"""Names of outputs, and shapes of inputs from the first one, beside MXNet's own."""

from __future__ import annotations

from typing import Any

import mxnet as mx
import pytest
from families import RECORDS
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from records import Record
from runs import arrays_for, build, import_case

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import Attrs, canonical
from ngraph_mxnet.frontends.mxnet.importer import import_symbol
from ngraph_mxnet.frontends.mxnet.rules.signatures import WANTED
from ngraph_mxnet.frontends.mxnet.symbol_json import parse_symbol

every_record = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)


def _drawn(record: Record, check: Any) -> None:
    @seed(0)
    @settings(max_examples=4)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        case = record.case(data.draw)
        symbol = build(record.op, case, numpy=record.numpy)
        check(symbol, arrays_for(symbol, case, seed=0, numpy=record.numpy))

    run()


@every_record
def test_names_of_outputs(record: Record) -> None:
    def check(symbol: mx.sym.Symbol, arrays: dict[str, Any]) -> None:
        try:
            graph = import_case(symbol, arrays)
        except UnsupportedError:  # an output that inference does not compute
            return
        assert [value.name for value in graph.results] == symbol.list_outputs()

    _drawn(record, check)


@pytest.mark.parametrize("record", [record for record in RECORDS if canonical(record.op) in WANTED],
                         ids=lambda record: record.name)
def test_shapes_of_inputs(record: Record) -> None:
    def check(symbol: mx.sym.Symbol, arrays: dict[str, Any]) -> None:
        if len(arrays) == 1:
            return
        operator = parse_symbol(symbol.tojson()).operators()[-1]
        told = WANTED[canonical(record.op)](Attrs(operator.attrs, operator.origin), arrays["x0"].shape)
        shapes = {f"x{place}": arrays[f"x{place}"].shape for place in range(len(arrays))
                  if place not in told and f"x{place}" in arrays}
        arguments, _, states = symbol.infer_shape_partial(**shapes)
        expected = dict(zip([*symbol.list_arguments(), *symbol.list_auxiliary_states()], [*arguments, *states],
                            strict=True))
        if not all(shape and min(shape) > 0 for shape in expected.values()):
            return
        graph = import_symbol(symbol.tojson(), shapes, {name: str(array.dtype) for name, array in arrays.items()})
        assert {value.name: value.shape for value in graph.parameters} == expected

    _drawn(record, check)


@pytest.mark.parametrize("condition", [(3, 4), (3,)])
def test_a_choice_between_states_tells_their_open_size(condition: tuple[int, ...]) -> None:
    """As GluonTS begins a recurrent layer: a batch of 0 is unknown, and the same zeros are chosen in either case. MXNet
    tells the size by what reads the choice, we by the condition."""
    state = mx.sym.zeros((0, 4), name="state")
    symbol = mx.sym.where(mx.sym.var("condition"), state, state)
    graph = import_symbol(symbol.tojson(), {"condition": condition}, {})
    assert [value.shape for value in graph.results] == [(3, 4)]
