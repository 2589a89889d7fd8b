"""Recurrent layers."""

from __future__ import annotations

from hypothesis import strategies as st
from records import Case, Draw, Operand, Record, maybe, pick

_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def _layers(steps: int, batch: int, inputs: int, units: int, *, mode: str, num_layers: int, bidirectional: bool = False,
            **attrs: object) -> Case:
    """An application of RNN, its parameter vector as long as MXNet wants it."""
    directions, rows = 2 if bidirectional else 1, _GATES[mode] * units
    depths = [inputs, *[units * directions] * (num_layers - 1)]
    size = sum(directions * rows * (depth + units + 2) for depth in depths)
    both = num_layers * directions
    bound = 0.2 if mode == "rnn_relu" else 0.7  # a ReLU bounds nothing: larger weights amplify what was rounded
    operands = [Operand((steps, batch, inputs)), Operand((size,), low=-bound, high=bound),
                Operand((both, batch, units))]
    if mode == "lstm":
        operands.append(operands[-1])
    if attrs.get("use_sequence_length"):
        operands.append(Operand((batch,), low=1, high=steps))
    given = {"mode": mode, "num_layers": num_layers, "state_size": units, "bidirectional": bidirectional, **attrs}
    return Case(operands, given)


def _rnn(draw: Draw) -> Case:
    mode = pick(draw, *_GATES)
    units = pick(draw, 1, 3, 8, 16, 17, 40)
    # No projection_size: on a CPU MXNet writes past its buffers for it, and crashes. `test_recurrent` has it.
    return _layers(
        draw(st.integers(1, 6)), draw(st.integers(1, 8)), pick(draw, 1, 5, 16, 33), units, mode=mode,
        num_layers=draw(st.integers(1, 3)), bidirectional=draw(st.booleans()),
        # MXNet draws at random where p is set only while it trains.
        **maybe(draw, state_outputs=st.booleans(), p=st.sampled_from([0.0, 0.3]), use_sequence_length=st.booleans()),
        **(maybe(draw, lstm_state_clip_max=st.just(0.1), lstm_state_clip_min=st.just(-0.1)) if mode == "lstm" else {}),
    )


def _concat(draw: Draw) -> Case:
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=5))
    return Case([Operand((size,)) for size in sizes], {"dim": 0, "num_args": len(sizes)})


RECORDS = [Record("RNN", _rnn), Record("_rnn_param_concat", _concat)]
