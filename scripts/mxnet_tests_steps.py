"""The comparison of compiled training steps with MXNet's own, for `mxnet_tests_plugin.py`."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from mxnet_tests_comparison import Recorder, repeatable_step

_Copy = Callable[[Any], Any]
_NEAR = 6
"""Runs near by; each takes a rectifier's other side by chance."""
_MOST_BYTES = 1 << 28
"""Of a step's arrays: several copies are held at once."""


def _is_small(arrays: Iterable[Any]) -> bool:
    return sum(array.size * np.dtype(array.dtype).itemsize for array in arrays) <= _MOST_BYTES


def _copy(array: Any) -> Any:
    return array.copy()


def _wide_copy(array: Any) -> Any:
    return array.astype(np.float64) if np.dtype(array.dtype).kind == "f" else array.copy()


def _near_copies(seed: int) -> _Copy:
    """Copies in float64 that are off by a float32's rounding, the same for each seed."""
    from mxnet import nd

    draws = np.random.RandomState(seed)

    def copied(array: Any) -> Any:
        wide = _wide_copy(array)
        values = array.asnumpy()
        if values.dtype.kind != "f" or (values == np.round(values)).all():  # positions and labels are whole numbers
            return wide
        return wide * nd.array(1 + 2e-7 * draws.standard_normal(values.shape), dtype=np.float64)

    return copied


def _references(run: Callable[[_Copy], Sequence[Any]]) -> list[Callable[[], Sequence[Any]]]:
    """MXNet's results on copies; then those that judge where the two differ: in float64, whose sums show who rounds
    worse, and near by, since a rectifier's gradient jumps where its input is almost 0."""
    copies = [_copy, _wide_copy, *map(_near_copies, range(_NEAR))]
    return [functools.partial(run, copied) for copied in copies]


def watch_executor_steps(recorder: Recorder) -> None:
    """Compare each forward and backward pass of a compiled step of an executor."""
    from mxnet import nd

    from ngraph_mxnet.plugin.binding import compiled_bind, environment, executor
    from ngraph_mxnet.plugin.binding.executor import NGraphExecutor

    own_forward, own_backward = NGraphExecutor.forward, NGraphExecutor.backward

    def arrays_of(executor: Any) -> list[Any]:
        gradients = [array for array in executor.grad_arrays if array is not None]
        return [*executor.arg_arrays, *executor.aux_arrays, *gradients]

    def before(executor: Any) -> list[Any] | None:
        """Copies of the arrays; None: there is no compiled step, or it can't run twice, or is too large."""
        if not executor.training.ran:
            return None
        arrays = arrays_of(executor)
        dense = all(array.stype == "default" for array in arrays)
        if not (repeatable_step(executor._symbol.tojson()) and dense and _is_small(arrays)):
            recorder.left_out += 1
            return None
        with _paused():
            return [array.copy() for array in arrays]

    def native(executor: Any, arrays: Sequence[Any], copied: _Copy, run: Callable[[Any], Any]) -> Any:
        """MXNet's executor over copies of these arrays, run. That of plain copies is bound once: some tests go forward
        a thousand times."""
        bound = executor.__dict__.get("_step_reference") if copied is _copy else None
        with _paused():
            if bound is None:
                left = iter([copied(array) for array in arrays])
                args, aux = ([next(left) for _ in own] for own in (executor.arg_arrays, executor.aux_arrays))
                grads = [None if array is None else next(left) for array in executor.grad_arrays] or None
                bound = environment.as_written(lambda: compiled_bind.stock_bind(
                    executor._symbol, executor._ctx, args, grads, executor._grad_req, aux))
                if copied is _copy:
                    executor.__dict__["_step_reference"] = bound
            else:
                for source, target in zip(arrays, arrays_of(bound), strict=True):
                    source.copyto(target)
        return run(bound)

    def forward(self: Any, is_train: bool = False, **kwargs: Any) -> Any:
        outputs = own_forward(self, is_train, **kwargs)
        arrays = before(self)
        if arrays is not None:
            reference, *exact = _references(
                lambda copied: native(self, arrays, copied, lambda bound: bound.forward(is_train=True)))
            recorder.compare(f"step of {self._symbol.name}", outputs, reference, exact=exact)
        return outputs

    def backward(self: Any, out_grads: Any = None, is_train: bool = True) -> None:
        arrays = before(self)
        own_backward(self, out_grads, is_train)
        if arrays is None:
            return
        given = executor._listed(self, out_grads)

        def expected(copied: _Copy) -> list[Any]:
            def run(bound: Any) -> list[Any]:
                bound.forward(is_train=True)
                bound.backward([copied(head) for head in given] or None, is_train)
                nd.waitall()  # moving statistics: MXNet's engine is not told that this pass writes them
                return arrays_of(bound)

            return native(self, arrays, copied, run)

        names = [*(f"{name} afterwards" for name in (*self.arg_dict, *self.aux_dict)),
                 *(f"gradient of {name}" for name, array in self.grad_dict.items() if array is not None)]
        reference, *exact = _references(expected)
        recorder.compare(f"step of {self._symbol.name}", arrays_of(self), reference, names, exact)

    NGraphExecutor.forward, NGraphExecutor.backward = forward, backward  # type: ignore[method-assign]


def watch_recorded_steps(recorder: Recorder) -> None:
    """Compare each call under `autograd.record` that is compiled, of a block, a loss or a part of a step.

    Its program goes forward again on copies, and back from gradients of the outputs that are drawn: those that the test
    goes back from come later, or never.
    """
    from mxnet import autograd, nd, sym

    from ngraph_mxnet.plugin.binding import gluon_blocks
    from ngraph_mxnet.plugin.training.steps import Calls, Step

    own_step, own_init, own_run = Step.__init__, Calls.__init__, Calls.run

    def init_step(self: Any, symbol: Any, *args: Any, **kwargs: Any) -> None:
        own_step(self, symbol, *args, **kwargs)
        root = json.loads(symbol) if isinstance(symbol, str) else symbol.to_json()
        root.setdefault("attrs", {"mxnet_version": ["int", 10901]})
        self.text = json.dumps(root)

    def init(self: Any, step: Any, arguments: Any, parameters: Any) -> None:
        own_init(self, step, arguments, parameters)
        self.made_of = step, list(arguments), dict(parameters)

    def results(run: Callable[[Mapping[str, Any]], Sequence[Any]], given: Mapping[str, Any], trained: Sequence[str],
                train_mode: bool, copied: _Copy) -> list[Any]:
        """The outputs, then the arrays afterwards, then the gradients."""
        with _paused():
            arrays = {name: copied(array) for name, array in given.items()}
            for name in trained:
                arrays[name].attach_grad()
        with autograd.record(train_mode=train_mode):
            outputs = run(arrays)
        draws = np.random.RandomState(7)
        with _paused():
            heads = [nd.array(draws.standard_normal(output.shape), dtype=output.dtype) for output in outputs]
        autograd.backward(list(outputs), heads)
        nd.waitall()
        return [*outputs, *arrays.values(), *(arrays[name].grad for name in trained)]

    def compare(calls: Any, given: Mapping[str, Any], outputs: Sequence[Any]) -> None:
        step, arguments, parameters = calls.made_of
        symbol, trained = sym.load_json(step.text), step.wanted

        def ours(arrays: Mapping[str, Any]) -> Any:
            apart = Calls(step, arguments, {name: arrays[name] for name in parameters})
            return own_run(apart, [arrays[name] for name in arguments])

        def native(arrays: Mapping[str, Any]) -> Any:
            made = nd.CachedOp(symbol)(*[arrays[name] for name in symbol.list_inputs()])
            return made if isinstance(made, list) else [made]

        mode = autograd.is_training()
        again = results(ours, given, trained, mode, _copy)
        names = [*(f"output {number} again" for number in range(len(outputs))),
                 *(f"{name} afterwards" for name in given), *(f"gradient of {name}" for name in trained)]

        def expected(copied: _Copy) -> list[Any]:
            found = results(native, given, trained, mode, copied)
            return [*found[:len(outputs)], *found]

        reference, *exact = _references(expected)
        title = f"recorded {symbol.name or symbol.list_outputs()}"
        recorder.compare(title, [*outputs, *again], reference, names, exact)

    def run(self: Any, given_arrays: Sequence[Any], *more: Any, **named: Any) -> Any:
        step, arguments, parameters = self.made_of
        arrays = {**dict(zip(arguments, map(_array, given_arrays), strict=True)), **parameters}
        compared = repeatable_step(step.text) and _is_small(arrays.values())
        with _paused():  # the call itself may write a gamma
            given = {name: array.copy() for name, array in arrays.items()} if compared else {}
        outputs = own_run(self, given_arrays, *more, **named)
        if outputs is not None:
            if compared:
                compare(self, given, outputs)
            else:
                recorder.left_out += 1
        return outputs

    Step.__init__, Calls.__init__, Calls.run = init_step, init, run  # type: ignore[method-assign]
    gluon_blocks.remember_recorded = lambda *_: None


def _paused() -> Any:
    from mxnet import autograd

    return autograd.pause(train_mode=autograd.is_training())


def _array(given: Any) -> Any:
    """An array of `mx.nd` over the same memory."""
    from mxnet.base import _LIB, check_call
    from mxnet.ndarray import NDArray

    copied = ctypes.c_void_p()
    check_call(_LIB.MXShallowCopyNDArray(given.handle, ctypes.byref(copied)))
    return NDArray(copied)
