"""How the ranks of a job find each other: rank 0 listens, and hands an invitation to the others."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Sequence
from typing import NamedTuple

_SECONDS = 3.0
"""For each address that a connection is tried to."""


class Invitation(NamedTuple):
    """Where rank 0 listens, and what a rank says to be one of the job. `problem`: why it doesn't listen, else empty."""

    addresses: list[str]
    port: int
    token: str
    problem: str = ""

    def to_text(self) -> str:
        """As `from_text` reads it."""
        return json.dumps(self)

    @staticmethod
    def from_text(text: str) -> Invitation:
        """Of `to_text`."""
        return Invitation(*json.loads(text))


def listen(hosts: Sequence[str]) -> tuple[socket.socket | None, Invitation]:
    """A listening socket on this host, rank 0's, for ranks on these: from outside it can be reached only if one is
    elsewhere. None where that fails, which the invitation says."""
    others = sorted({*hosts} - {hosts[0]})
    try:
        if not others:
            listening, addresses = socket.create_server(("127.0.0.1", 0), backlog=len(hosts)), ["127.0.0.1"]
        else:
            dual = socket.has_dualstack_ipv6()
            listening = socket.create_server(("", 0), family=socket.AF_INET6 if dual else socket.AF_INET,
                                             backlog=len(hosts), dualstack_ipv6=dual)
            addresses = [*_addresses_towards(others), hosts[0]]
    except OSError as error:
        return None, Invitation([], 0, "", f"rank 0 ({hosts[0]}) can't listen for the other ranks: {error}")
    return listening, Invitation(addresses, listening.getsockname()[1], secrets.token_hex(16))


def _addresses_towards(hosts: Sequence[str]) -> list[str]:
    """This host's addresses from which the system would send to these, as far as their names are known."""
    found: dict[str, None] = {}
    for host in hosts:
        try:
            options = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        except OSError:
            continue
        for family, kind, protocol, _, address in options:
            try:
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(address)  # which for datagrams sends nothing
                    found[str(probe.getsockname()[0])] = None
            except OSError:
                continue
    return list(found)


def connect(invitation: Invitation) -> socket.socket:
    """A connection to rank 0.

    Raises:
        ConnectionError: none of its addresses answers; the text says what was tried.
    """
    tried = []
    for address in invitation.addresses:
        try:
            connected = socket.create_connection((address, invitation.port), timeout=_SECONDS)
        except OSError as error:
            tried.append(f"{address}: {error}")
        else:
            connected.settimeout(None)
            return connected
    raise ConnectionError(f"rank 0 can't be reached at port {invitation.port}: {'; '.join(tried)}")
