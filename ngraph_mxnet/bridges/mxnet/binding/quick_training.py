"""The short way from a block's `__call__` to its recorded calls: as `quick_call`, unless NGRAPH_TRAINING=0.

What the arguments are, and whether gradients by them may be wanted, is compared in C++ (csrc/mxnet/recorded_steps.h).
"""

from __future__ import annotations

from typing import Any

from mxnet.gluon.block import HybridBlock, _regroup
from mxnet.ndarray import NDArray

from ngraph_mxnet import config
from ngraph_mxnet.bridges.mxnet.binding.quick_call import Remembered
from ngraph_mxnet.bridges.mxnet.binding.side_tables import of_block


class QuickTraining(Remembered):
    """A call that was recorded."""

    def __init__(self, block: HybridBlock, training: Any, steps: Any, count: int) -> None:
        """`training`: counts the calls; `steps`: the `RecordedSteps` that have run it."""
        from ngraph_mxnet import _core

        super().__init__(block, count)
        self._training, self._mode_of, self._steps = training, _core.recording_mode, steps
        self._mode = self._mode_of()
        self._places = [found for is_input, found in block._cached_op_args if is_input]

    def call(self, block: HybridBlock, args: tuple[Any, ...]) -> Any:
        """The outputs as Gluon gives them; None: they are not to be had this way."""
        if self._mode_of() is not self._mode or not self.fits(block, args) or not config.get("NGRAPH_TRAINING"):
            return None
        try:
            outputs = self._steps.call([args[place].handle.value for place in self._places], True)
        except Exception:  # the long way meets it again, and tells
            return None
        if outputs is None:
            return None
        self._training.count += 1
        return _regroup(outputs, block._out_format)


def remember(block: HybridBlock, training: Any, steps: Any, args: list[Any]) -> None:
    """The block has been called with these arguments, of which none was a list, and `steps` have run it."""
    plain = all(type(arg) is NDArray for arg in args) and not any(block._in_format)
    trained = QuickTraining(block, training, steps, len(args)) if plain else None
    of_block(block).trained = trained if trained is not None and trained.same(block, tuple(args)) else None
