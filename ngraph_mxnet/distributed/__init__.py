"""Data-parallel training: sums of gradients over the processes of an MPI job, while the backward pass still runs.

`World` is the job; `GradientSet` sums what one optimizer updates, `sum_rows` what has few rows. Frameworks' parts
stand on these (for MXNet: `plugin/kvstore`). `peer_watch` and `process_end` say when a process has failed,
`rank_facts` where they differ.
"""

from ngraph_mxnet.distributed.gradients import GradientSet, Rows, Source, broadcast_rows, sum_rows
from ngraph_mxnet.distributed.world import World, world

__all__ = ["GradientSet", "Rows", "Source", "World", "broadcast_rows", "sum_rows", "world"]
