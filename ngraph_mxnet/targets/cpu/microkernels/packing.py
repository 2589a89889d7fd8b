"""How a contraction's packed weights are grouped.

Group convolutions whose group is not made of whole 16-channel blocks are merged into *super-groups* that
are: the packed weights are block diagonal with zeros between the original groups. The layouts themselves are defined in
NumPy in `tests/targets/cpu/packing_references.py`.
"""

from __future__ import annotations

from ngraph_mxnet.targets.cpu.microkernels.params import BLOCK

__all__ = ["super_groups"]


def super_groups(groups: int, in_channels: int, out_channels: int, lanes: int = BLOCK) -> int:
    """Number of super-groups for a convolution of `groups` groups.

    With more than one, each has whole 16-channel output blocks and, for k16 (`lanes` 16), whole input blocks.
    1 when no divisor of `groups` gives that: the convolution is then dense with zeros.
    """
    for merged in range(1, groups):
        count, rest = divmod(groups, merged)
        if rest == 0 and (out_channels // count) % BLOCK == 0 and (in_channels // count) % lanes == 0:
            return count
    return 1
