"""The parts of the watch: in one process, ranks are threads' objects."""

from __future__ import annotations

import math
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ngraph_mxnet import _core
from ngraph_mxnet.base.errors import DistributedError
from ngraph_mxnet.distributed.world import (
    Invitation,
    PeerWatch,
    ProcessEnd,
    RankFacts,
    Tensor,
    connect,
    describe_mismatch,
    listen,
)

TOKEN = "secret"


class Ranks:
    """Native watches of one job, that end no process."""

    def __init__(self, size: int, silence: float = 30.0) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.hosts = [f"host{rank}" for rank in range(size)]
        self._silence = silence
        self.watches = [_core.PeerWatch(0, self.hosts, TOKEN, self.listening.detach(), silence, math.inf)]

    def join(self, rank: int, token: str = TOKEN) -> object:
        connected = self.connection().detach()
        self.watches.append(_core.PeerWatch(rank, self.hosts, token, connected, self._silence, math.inf))
        return self.watches[-1]

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))


@pytest.fixture
def pair() -> Iterator[Ranks]:
    ranks = Ranks(2)
    yield ranks
    ranks.watches.clear()


def test_a_failure_reaches_all_who_wait(pair: Ranks) -> None:
    first, second = pair.watches[0], pair.join(1)
    assert first.wait_for_start(5) and second.wait_for_start(5)
    assert not first.has_failed and first.failure() is None and not first.wait(0.01)
    woken: list[float] = []
    thread = threading.Thread(target=lambda: first.wait(20) and woken.append(time.monotonic()))
    thread.start()
    assert select.select([first.failure_descriptor], [], [], 0)[0] == []
    told = time.monotonic()
    second.fail("no\nmore \udcffdata".encode("utf-8", "replace").decode())
    thread.join()
    assert woken[0] - told < 1
    assert select.select([first.failure_descriptor], [], [], 0)[0] == [first.failure_descriptor]
    assert first.failure() == second.failure() == (1, "host1", "rank 1 (host1) failed: no more ?data")
    first.fail("later")
    assert first.failure()[0] == 1  # the first failure counts


def test_a_long_text_is_cut_between_characters(pair: Ranks) -> None:
    first, second = pair.watches[0], pair.join(1)
    second.fail("é" * 5000)
    assert first.wait(5)
    text = first.failure()[2]
    assert text.endswith("é...") and set(text[len("rank 1 (host1) failed: "):-3]) == {"é"} and len(text) < 2000


def send_until_closed(connection: socket.socket) -> None:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        connection.send(b"x" * 1000)
        time.sleep(0.01)


def test_who_does_not_know_the_token_is_no_rank(pair: Ranks) -> None:
    with pair.connection() as stranger:
        stranger.sendall(b"hello wrong 1\n")
        assert stranger.recv(10) == b""
    with pair.connection() as stranger, pair.connection() as silent:
        stranger.sendall(b"hello " + b"x" * 20_000)
        with pytest.raises(ConnectionError):
            send_until_closed(stranger)
        assert pair.watches[0].missing() == [1]
        second = pair.join(1)
        assert second.wait_for_start(5) and pair.watches[0].missing() == []
        silent.settimeout(5)
        assert silent.recv(10) == b""
    with pytest.raises(ConnectionRefusedError):
        pair.connection()
    assert not pair.watches[0].has_failed


def test_a_rank_counts_once(pair: Ranks) -> None:
    second = pair.join(1)
    assert second.wait_for_start(5)
    ranks = Ranks(3)
    rank = ranks.join(1)
    again = ranks.join(1)
    assert again.wait(5) and again.failure()[0] == 0  # sent away
    assert not rank.has_failed and ranks.watches[0].missing() == [2]


def test_another_version_s_words_are_a_failure(pair: Ranks) -> None:
    with pair.connection() as other:
        other.sendall(f"hello {TOKEN} 1\npivot 3\n".encode())
        assert pair.watches[0].wait(5)
    assert 'rank 1 (host1) says "pivot 3"' in pair.watches[0].failure()[2]


def test_a_connection_that_brings_nothing_is_a_failure() -> None:
    """As of a machine that can't be reached any more."""
    ranks = Ranks(2, silence=1.0)
    with ranks.connection() as other:
        begin = time.monotonic()
        other.sendall(f"hello {TOKEN} 1\n".encode())
        assert ranks.watches[0].wait(10) and 1.0 <= time.monotonic() - begin < 5.0
    assert "rank 1 (host1) has given no sign of life for 1 s" in ranks.watches[0].failure()[2]


def test_a_watch_that_goes_has_failed_unless_all_have_left(pair: Ranks) -> None:
    first, second = pair.watches[0], pair.join(1)
    assert first.wait_for_start(5)
    pair.watches.remove(second)
    second.leave(3)
    first.step(3, True)
    del second
    assert not first.wait(0.8)
    first.leave(None)
    assert first.wait_for_all(5)


def test_steps_are_compared_when_a_rank_has_left(pair: Ranks) -> None:
    first, second = pair.watches[0], pair.join(1)
    first.leave(1)
    second.step(2, False)
    assert not second.wait(0.8)  # it computes, and may leave without the others
    second.step(2, True)
    assert second.wait(2)
    assert second.failure() == (
        0, "host0", "rank 0 (host0) ended after 1 step, and rank 1 (host1) waits for it in step 2: give all ranks the "
        "same number of batches")


def test_a_rank_needs_to_be_one_of_the_job() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    with pytest.raises(ValueError, match="rank 2 of 2 ranks"):
        _core.PeerWatch(2, ["a", "b"], TOKEN, listening.fileno(), 4.0, 2.0)
    listening.close()


def test_one_rank_is_a_job() -> None:
    watch = PeerWatch(0, 1, lambda text: [text])
    watch.step(1, True)
    watch.check()
    watch.leave()
    assert watch.wait_for_all(5) and watch.failure() is None


def test_check_raises_what_failed() -> None:
    watch = PeerWatch(0, 1, lambda text: [text])
    watch.fail("no data")
    with pytest.raises(DistributedError, match=r"rank 0 \(.+\) failed: no data"):
        watch.check()
    assert watch.wait(20) and not watch.wait_for_all()


def test_the_process_s_hooks_go_again() -> None:
    before, handler = (sys.excepthook, sys.exit), signal.getsignal(signal.SIGTERM)
    watch = PeerWatch(0, 1, lambda text: [text])
    end = ProcessEnd(watch)
    end.install()
    assert sys.excepthook is not before[0]
    with pytest.raises(SystemExit) as caught:
        sys.exit(3)
    assert caught.value.code == 3 and watch.failure() is None
    with pytest.raises(SystemExit) as caught:
        sys.exit()
    assert caught.value.code is None
    end.remove()
    assert (sys.excepthook, sys.exit) == before and signal.getsignal(signal.SIGTERM) == handler


# ---- how ranks find each other -----------------------------------------------------------------------------


def answers(*each: list[str]) -> Callable[[str], list[str]]:
    """An `allgather` with these results."""
    left = iter(each)
    return lambda text: next(left)


def test_ranks_of_one_host_can_t_be_reached_from_outside() -> None:
    listening, invitation = listen(["here", "here"])
    with listening, connect(Invitation.from_text(invitation.to_text())) as connected:
        assert listening.getsockname()[0] == "127.0.0.1" == connected.getpeername()[0]
    assert len(invitation.token) == 32 and invitation.token != listen(["here"])[1].token


def test_ranks_of_other_hosts_come_by_the_address_that_leads_to_them() -> None:
    listening, invitation = listen(["here.invalid", "localhost", "nowhere.invalid"])
    with listening, connect(invitation) as connected:
        assert connected.getpeername()[1] == listening.getsockname()[1] == invitation.port
    assert "127.0.0.1" in invitation.addresses and invitation.addresses[-1] == "here.invalid"


def test_a_rank_that_can_t_reach_rank_0_says_what_it_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    invitation = Invitation(["127.0.0.1"], port, "").to_text()
    with pytest.raises(DistributedError, match=rf"rank 1 \(b\) can't join the job: .*port {port}: 127.0.0.1: .*refus"):
        PeerWatch(1, 2, answers(["a", "b"], [invitation, ""]))


def test_where_rank_0_can_t_listen_all_ranks_fail() -> None:
    problem = Invitation([], 0, "", "rank 0 (a) can't listen for the other ranks: no sockets").to_text()
    with pytest.raises(DistributedError, match=r"rank 0 \(a\) can't listen"):
        PeerWatch(1, 2, answers(["a", "b"], [problem, ""]))


# ---- what has to be the same -------------------------------------------------------------------------------


def facts(rank: int, **fields: object) -> RankFacts:
    same = {
        "versions": {"ngraph_mxnet": "0.1.0", "mxnet": "1.9.1"}, "settings": {"NGRAPH_PRECISION": "f32"},
        "operation": "broadcast", "tensors": (Tensor("w", (2, 3), "float32"), Tensor("b", (2,), "float32")),
        "optimizer": "SGD", "hyperparameters": {"momentum": 0.9},
    }
    return RankFacts(rank, **{**same, **fields})


@pytest.mark.parametrize(("fields", "text"), [
    ({"versions": {"ngraph_mxnet": "0.1.0", "mxnet": "1.9.0"}},
     "the version of mxnet is not the same on all ranks: 1.9.1 on ranks 0 and 2, 1.9.0 on rank 1; install the same on "
     "all machines"),
    ({"settings": {}},
     "the setting NGRAPH_PRECISION is not the same on all ranks: f32 on ranks 0 and 2, nothing on rank 1; give all"),
    ({"operation": "barrier", "tensors": ()},
     "what the store is asked for is not the same on all ranks: broadcast on ranks 0 and 2, barrier on rank 1; all"),
    ({"tensors": (Tensor("w", (2, 3), "float32"),)},
     "the shape of b is not the same on all ranks: (2) on ranks 0 and 2, nothing on rank 1"),
    ({"tensors": (Tensor("w", (2, 3), "float16"), Tensor("b", (2,), "float32"))},
     "the dtype of w is not the same on all ranks: float32 on ranks 0 and 2, float16 on rank 1; build the same model"),
    ({"tensors": (Tensor("w", (2, 3), "float32", "row_sparse"), Tensor("b", (2,), "float32"))},
     "the storage type of w is not the same on all ranks: default on ranks 0 and 2, row_sparse on rank 1; build"),
    ({"tensors": (Tensor("b", (2,), "float32"), Tensor("w", (2, 3), "float32"))},
     "the order of parameters is not the same on all ranks: (w, b) on ranks 0 and 2, (b, w) on rank 1"),
    ({"optimizer": "Adam"}, "the optimizer is not the same on all ranks: SGD on ranks 0 and 2, Adam on rank 1"),
    ({"hyperparameters": {"momentum": 0.99}},
     "the optimizer's momentum is not the same on all ranks: 0.9 on ranks 0 and 2, 0.99 on rank 1; give all ranks"),
])
def test_the_first_difference_is_named_with_its_sides(fields: dict[str, object], text: str) -> None:
    everyone = [facts(0), facts(1, **fields), facts(2)]
    found = {describe_mismatch(mine, [each for each in everyone if each is not mine]) for mine in everyone}
    assert len(found) == 1 and str(found.pop()).startswith(text)


def test_equal_facts_are_no_mismatch() -> None:
    everyone = [facts(rank) for rank in range(3)]
    sent = [RankFacts.from_json(each.to_json()) for each in everyone]
    assert sent == everyone
    assert describe_mismatch(everyone[1], [sent[0], sent[2]]) is None
