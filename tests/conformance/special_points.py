"""Applications at special points, forward and backward, on our backends against native MXNet.

A point says what stands in the operands that gradients go back to, and in all of an operator without gradients. Each is
tried with as few elements as fit and with more than 1,500, by which kernels have bodies of vectors, tails and threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import mxnet as mx
import numpy as np
from departures import departure
from records import Case, Operand, Record
from runs import Arrays, arrays_for, build, import_case
from test_gradients import LEFT_OUT, Native, native_step

from ngraph_mxnet.autodiff import differentiate
from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.frontends.mxnet.rules.registry import find_rule
from ngraph_mxnet.ir import Graph, TensorType, element_type
from ngraph_mxnet.ir.types import RANDOM_STATE
from ngraph_mxnet.plugin.training.graph import import_training
from ngraph_mxnet.program.compile import compile as compile_graph

INF, NAN = np.inf, np.nan
POINTS: dict[str, tuple[float, ...]] = {
    "as drawn": (), "ties": (1.0,), "corners": (-3, -2.5, -1, -0.5, 0.5, 1, 2, 2.5, 3, 6), "zeros": (0.0, -0.0),
    "infinities": (INF, -INF, 1.0, -1.0), "one infinity": (INF,), "masks": (-INF, 1.0, 2.0), "NaN": (NAN, 1.0, -2.0),
    "huge": (1e25, -1e25, 2e25), "enormous": (1e38, -1e38), "tiny": (1e-25, -1e-25, 2e-25), "denormal": (1e-40, -1e-40),
}
_SIZES = 2
_SMALL = 10_000
"""Elements up to which the interpreter is asked, too."""
BACKENDS = ("INTERPRETER", "CPU")
_FAR = ("huge", "enormous", "tiny", "denormal")
"""Points at which differences far below 1 count."""
TOLERANCE, NOISE, NORMAL = 1e-3, 2e-6, float(np.finfo(np.float32).tiny)
_ELEMENTWISE = ("arithmetic", "elementwise", "numpy_elementwise", "reduction", "numpy_reduction", "ordering", "pooling")
"""Modules of rules whose operands are all numbers: none of them indices, lengths or labels."""
NATIVE_ENDS = {
    ("_contrib_ROIAlign", "aligned", "True"): "MXNet ends the process for a region that is turned round",
    ("UpSampling", "sample_type", "bilinear"): "MXNet ends the process for an input without a weight",
}
"""Options, by the record's name, with which MXNet ends the process."""
CUT_OFF = ("_div_scalar", "_mod_scalar")
"""MXNet ends the process where integers are divided by a scalar below 1, which it cuts off to 0."""
seen: Counter[str] = Counter()


@dataclass(frozen=True)
class Difference:
    """One tensor that came out otherwise: how, where, and at the first place ours and MXNet's."""

    op: str
    attrs: str
    shapes: str
    point: str
    backend: str
    tensor: str
    ours: float
    theirs: float
    inputs: str

    def __str__(self) -> str:
        return (f"{self.op} {self.attrs} of {self.shapes}, {self.point}, {self.backend}: {self.tensor} is {self.ours}, "
                f"MXNet's {self.theirs} at {self.inputs}")


def sized(case: Case) -> Iterator[Case]:
    """With two elements and with 1,500 where all operands are alike; else as drawn, and with its first axis repeated.

    MXNet judges which of them fit.
    """
    shapes = {operand.shape for operand in case.operands}
    free = all(operand.values is None for operand in case.operands)
    if len(shapes) == 1 and free and case.symbol is None and not case.body:
        yield replace(case, operands=[replace(operand, shape=(2,)) for operand in case.operands])
        yield replace(case, operands=[replace(operand, shape=(1500,)) for operand in case.operands])
    yield case
    first = case.operands[0].shape if case.operands else ()
    if free and first and 0 < np.prod(first) < 1500 and case.symbol is None and not case.body:
        more = -(-1500 // int(np.prod(first)))
        yield replace(case, operands=[_longer(operand, first[0], more) for operand in case.operands])


def _longer(operand: Operand, lead: int, times: int) -> Operand:
    if not operand.shape or operand.shape[0] != lead:
        return operand
    return replace(operand, shape=(operand.shape[0] * times, *operand.shape[1:]))


def filled(arrays: Arrays, names: Sequence[str], point: str, number: int) -> Arrays:
    """The arrays with the point's numbers in those of these names, in any order."""
    values = POINTS[point]
    if not values:
        return arrays
    rng = np.random.default_rng(number)
    return {name: rng.choice(np.array(values, np.float32), array.shape).astype(array.dtype)
            if name in names else array for name, array in arrays.items()}


def differences(record: Record, case: Case, points: Sequence[str] = tuple(POINTS)) -> Iterator[Difference]:
    """Of one application, in the first two sizes that fit and at all points."""
    done: set[str] = set()
    for one in sized(case):
        if len(done) == _SIZES or repr(one) in done or _left_out(record.name, one):
            continue
        try:
            symbol = build(record.op, one, numpy=record.numpy)
            if record.outputs is not None:
                symbol = mx.sym.Group([symbol[i] for i in record.outputs])
            arrays = arrays_for(symbol, one, 0, numpy=record.numpy)
            compared = _Compared(record, one, symbol, arrays)
        except (mx.MXNetError, UnsupportedError, ValueError, TypeError, IndexError) as error:
            seen[f"refused: {type(error).__name__}"] += 1
            continue
        done.add(repr(one))
        for number, point in enumerate(points):
            yield from compared.at(point, number)


def _left_out(record: str, case: Case) -> bool:
    given = {name: str(value) for name, value in case.attrs.items()}
    if record in CUT_OFF and "int" in case.operands[0].dtype and abs(float(given["scalar"])) < 1:
        return True
    return any(given.get(name) == value for name, value in LEFT_OUT) or any(
        record == own and given.get(name) == value for own, name, value in NATIVE_ENDS)


class _Compared:
    """One application in one size. What is special goes into `special`."""

    def __init__(self, record: Record, case: Case, symbol: mx.sym.Symbol, arrays: Arrays) -> None:
        self.record, self.case, self.symbol, self.arrays = record, case, symbol, arrays
        floats = [name for name in symbol.list_arguments() if arrays[name].dtype.kind == "f"]
        self.wanted, native = floats, self._native(arrays, floats) if floats else None
        if native is None and len(floats) > 1:
            self.wanted, native = floats[:1], self._native(arrays, floats[:1])
        if native is None:
            self.wanted = []
            native = self._native(arrays, [])
        if native is None:
            raise mx.MXNetError("MXNet refuses the application")
        rule = find_rule(record.op)
        assert rule is not None
        room = rule.lower.__module__.rpartition(".")[2]
        self.special = floats if room in _ELEMENTWISE else [name for name in self.wanted if native[2][name].any()]
        small = sum(array.size for array in arrays.values()) <= _SMALL
        self.backends = BACKENDS if small else BACKENDS[-1:]
        self.inference = self._compiled(import_case(symbol, arrays))
        self.names: list[str] = []
        self.joint = self._trained() if self.wanted else None

    def _compiled(self, graph: Graph) -> dict[str, Callable[[Arrays], Sequence[np.ndarray]]]:
        """By backend, what runs the graph on arrays by name."""
        names = [parameter.name for parameter in graph.parameters]

        def runs(backend: str) -> Callable[[Arrays], Sequence[np.ndarray]]:
            executable = compile_graph(graph, backend)
            return lambda arrays: list(executable(*(arrays[name] for name in names)))

        return {backend: runs(backend) for backend in self.backends}

    def _native(self, arrays: Arrays, wanted: list[str]) -> Native | None:
        return native_step(self.symbol, arrays, wanted, 0, numpy=self.record.numpy)

    def _trained(self) -> dict[str, Callable[[Arrays], Sequence[np.ndarray]]] | None:
        types = {name: TensorType(element_type(array.dtype), array.shape) for name, array in self.arrays.items()}
        try:
            training = import_training(self.symbol.tojson(), types, self.wanted)
            numbers = [i for i in range(training.outputs) if training.graph.results[i].type.element.is_float]
            joint = differentiate(training.graph, self.wanted, heads=numbers)
        except UnsupportedError:
            seen["not trained"] += 1
            return None
        if any(parameter.name == RANDOM_STATE for parameter in joint.graph.parameters):
            seen["draws random numbers"] += 1
            return None
        self.names = [*self.symbol.list_outputs(), *(f"the state {one.name}" for one in training.statistics),
                      *(f"ones for {gamma.name}" for gamma in training.gammas),
                      *(f"the gradient of {name}" for name in self.wanted)]

        def moving(run: Callable[[Arrays], Sequence[np.ndarray]]) -> Callable[[Arrays], Sequence[np.ndarray]]:
            def moved(arrays: Arrays) -> Sequence[np.ndarray]:
                found = list(run(arrays))
                for number, one in enumerate(training.statistics, training.outputs):
                    kept = np.float32(one.momentum)
                    found[number] = found[number] * (1 - kept) + arrays[one.name] * kept
                return found
            return moved

        return {backend: moving(run) for backend, run in self._compiled(joint.graph).items()}

    def at(self, point: str, number: int) -> Iterator[Difference]:
        if POINTS[point] and not self.special:
            return
        arrays = filled(self.arrays, self.special, point, number)
        native = self._native(arrays, self.wanted)
        if native is None:
            seen["refused at a point"] += 1
            return
        outputs, heads, gradients, moved = native
        predicted = self._predicted(arrays)
        given = {**{f"head.{i}": head for i, head in enumerate(heads)}, **arrays}
        states = [moved[name.removeprefix("the state ")] for name in self.names if name.startswith("the state")]
        ones = [np.ones_like(arrays[name.removeprefix("ones for ")]) for name in self.names if name.startswith("ones")]
        expected = [*outputs, *states, *ones, *(gradients[name] for name in self.wanted)]
        for backend in self.backends:
            yield from self._compare(point, f"{backend} at inference", arrays, self.inference[backend](arrays),
                                     predicted, self.symbol.list_outputs())
            if self.joint is not None:
                yield from self._compare(point, f"{backend} in training", arrays, self.joint[backend](given), expected,
                                         self.names)

    def _predicted(self, arrays: Arrays) -> list[np.ndarray]:
        states = set(self.symbol.list_auxiliary_states())
        with mx.util.np_shape(self.record.numpy):
            values = {name: mx.nd.array(array, dtype=array.dtype) for name, array in arrays.items()}
            executor = self.symbol.bind(mx.cpu(), {n: v for n, v in values.items() if n not in states},
                                        grad_req="null", aux_states={n: v for n, v in values.items() if n in states})
            return [output.asnumpy() for output in executor.forward(is_train=False)]

    def _compare(self, point: str, backend: str, arrays: Arrays, found: Sequence[np.ndarray],
                 expected: Sequence[np.ndarray], names: Sequence[str]) -> Iterator[Difference]:
        for name, ours, theirs in zip(names, found, expected, strict=True):
            seen["compared"] += 1
            gradient = name.startswith("the gradient")
            noise = 0.0 if point in _FAR and self.special == list(arrays) else NOISE
            wrong = _wrong(ours, theirs, gradient=gradient, noise=noise, record=self.record)
            if gradient:  # of a NaN it is what a comparison with NaN makes of it
                wrong &= ~np.isnan(arrays[name.removeprefix("the gradient of ")])
            if not wrong.any():
                continue
            place = int(np.flatnonzero(wrong.ravel())[0])
            inputs = {key: [float(v) for v in array.ravel()[:2]] if array.size != theirs.size
                      else float(array.ravel()[place]) for key, array in arrays.items()}
            difference = Difference(
                self.record.op, str(self.case.attrs), " ".join(str(list(a.shape)) for a in arrays.values()), point,
                backend, name, float(ours.ravel()[place]), float(theirs.ravel()[place]), str(inputs))
            if departure(difference.op, self.case.attrs, point, name, difference.ours, difference.theirs):
                seen["departures"] += 1
                continue
            yield difference


def _wrong(ours: np.ndarray, theirs: np.ndarray, *, gradient: bool, noise: float, record: Record) -> np.ndarray:
    """Where they differ by more than `noise` and the record's tolerance. Of gradients one that is infinite or NaN is as
    good as another."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return np.ones(max(theirs.shape, (1,)), bool)
    if theirs.dtype.kind != "f":
        wide = ours.astype(np.int64) - theirs.astype(np.int64)
        return np.abs(wide) > record.steps
    own, wide = ours.astype(np.float64), theirs.astype(np.float64)
    whole, other = np.isfinite(own), np.isfinite(wide)
    largest = np.abs(wide[other]).max(initial=0.0)
    limit = max(TOLERANCE, record.tolerance) * np.abs(wide) + 1e-5 * largest + noise + 2 * NORMAL
    with np.errstate(all="ignore"):
        wrong = whole & other & ~(np.abs(own - wide) <= limit)
    wrong |= whole != other
    if not gradient:
        wrong |= ~whole & ~other & ~((own == wide) | (np.isnan(own) & np.isnan(wide)))
    return wrong
