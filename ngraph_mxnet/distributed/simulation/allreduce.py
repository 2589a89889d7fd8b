"""What an all-reduce takes: the alpha-beta-gamma model, message by message.

The ring: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009. Recursive
halving and doubling, and binomial trees: Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ngraph_mxnet.distributed.simulation.cluster import Cluster, Link, Scheme
from ngraph_mxnet.distributed.simulation.fields import require
from ngraph_mxnet.errors import listed


@dataclass(frozen=True)
class Channel:
    """What all ranks send their messages on at once.

    Attributes:
        links: a message takes as long as on the slowest of them.
        wire: bytes sent for each byte of a gradient.
        per_byte: seconds for each byte beside those on the wire; `reducing`: of a message that is added to a gradient.
    """

    links: tuple[Link, ...]
    wire: float = 1.0
    per_byte: float = 0.0
    reducing: float = 0.0

    def seconds(self, size: float, reduces: bool) -> float:
        """Of one message of so many bytes of a gradient."""
        sent = size * self.wire
        on_the_wire = max(link.latency_seconds + sent / link.bytes_per_second for link in self.links)
        return on_the_wire + size * (self.per_byte + (self.reducing if reduces else 0.0))


def _ring(size: float, ranks: int, channel: Channel) -> float:
    """In ranks - 1 steps each rank gets the sum of a part, in as many more it gets the other sums."""
    part = size / ranks
    return (ranks - 1) * (channel.seconds(part, True) + channel.seconds(part, False))


def _halving(size: float, ranks: int, channel: Channel) -> float:
    """Ranks beyond a power of two give all to a partner first, and get the sums from it at last."""
    rounds = ranks.bit_length() - 1
    halves = [size / 2**number for number in range(1, rounds + 1)]
    if ranks != 1 << rounds:
        halves.append(size)
    return sum(channel.seconds(half, True) + channel.seconds(half, False) for half in halves)


def _tree(size: float, ranks: int, channel: Channel) -> float:
    """A binomial tree to the root, and one back."""
    return (ranks - 1).bit_length() * (channel.seconds(size, True) + channel.seconds(size, False))


ALGORITHMS: Mapping[str, Callable[[float, int, Channel], float]] = {
    "ring": _ring, "halving": _halving, "tree": _tree}
"""Seconds for a gradient of so many bytes, ranks and a channel. `halving`: recursive halving, then doubling."""


def all_reduce_seconds(size: float, cluster: Cluster, scheme: Scheme) -> float:
    """From the last rank's call until all have the sums of `size` bytes of float32; 0 for one rank.

    Raises:
        SimulationError: there is no such algorithm, or it is not modelled for several ranks on each of several nodes.
    """
    require(scheme.algorithm in ALGORITHMS, "algorithm", repr(scheme.algorithm), f"one of {listed(ALGORITHMS)}")
    run = ALGORITHMS[scheme.algorithm]
    wire, convert = (0.5, cluster.convert_seconds_per_byte) if scheme.bf16 else (1.0, 0.0)
    nodes, local, reducing = cluster.nodes, cluster.ranks_per_node, cluster.reduce_seconds_per_byte
    if nodes == 1 or local == 1:
        links = (cluster.network,) if local == 1 else (cluster.memory,)
        return run(size, cluster.ranks, Channel(links, wire, convert, reducing))
    if not scheme.hierarchical:
        require(scheme.algorithm == "ring", f"algorithm, {local} ranks on each of {nodes} nodes",
                repr(scheme.algorithm), "'ring', or a hierarchical all-reduce")
        return _ring(size, cluster.ranks, Channel((cluster.network, cluster.memory), wire, convert, reducing))
    part = size / local
    inside = Channel((cluster.memory,), reducing=reducing)
    # The ranks of a node share its interface, each with a part of the bytes, and add and convert their parts at once.
    between = Channel((cluster.network,), wire, convert / local, reducing / local)
    return ((local - 1) * (inside.seconds(part, True) + inside.seconds(part, False))
            + run(size, nodes, between))
