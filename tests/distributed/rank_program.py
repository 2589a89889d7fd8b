"""One rank of a job, as `ranks.Job` starts it: RANK SIZE FOLDER SILENCE ACTION. It trains for a few steps, in each of
which all ranks wait for each other through files of FOLDER; ACTION says what it does in step 3."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ngraph_mxnet.distributed.world import PeerWatch, ProcessEnd, RankFacts, Tensor, describe_mismatch

STEPS = 6
STEP = 3
"""The one with the action."""
SECONDS = 0.02


class Exchange:
    """What MPI does for a job, by files that appear whole."""

    def __init__(self, rank: int, size: int, folder: Path) -> None:
        self._rank, self._size, self._folder = rank, size, folder
        self._calls = 0

    def allgather(self, text: str, wait: Callable[[float], object] = time.sleep) -> list[str]:
        self._calls += 1
        name = f"{self._calls}-{{}}".format
        new = self._folder / f"new-{name(self._rank)}"
        new.write_text(text)
        new.rename(self._folder / name(self._rank))
        paths = [self._folder / name(rank) for rank in range(self._size)]
        while not all(path.exists() for path in paths):
            if wait(0.005):
                return []
        return [path.read_text() for path in paths]


class Rank:
    def __init__(self, rank: int, size: int, folder: Path, silence: float) -> None:
        self.rank, self._exchange = rank, Exchange(rank, size, folder)
        self.watch = PeerWatch(rank, size, self._exchange.allgather, silence=silence)
        ProcessEnd(self.watch, finalize=lambda: say("finalized"), abort=lambda: say("aborted")).install()

    def train(self, action: Callable[[Rank], object], steps: int) -> None:
        for number in range(1, steps + 1):
            self.watch.check()
            self.watch.step(number, False)
            time.sleep(SECONDS)
            if number == STEP:
                say("action")
                action(self)
            self.watch.step(number, True)
            self.reduce("0")
            self.watch.step(number, False)

    def reduce(self, text: str) -> list[str]:
        found = self._exchange.allgather(text, self.watch.wait)
        self.watch.check()
        return found


def say(what: str) -> None:
    print(what, time.monotonic(), flush=True)


def fail(rank: Rank) -> None:
    raise ValueError("label 12 of 10 classes\nin the second line")


def hold_gil(rank: Rank) -> None:
    ctypes.PyDLL(None).usleep(int(1e6 * float(os.environ["HOLD"])))


def fork(rank: Rank) -> None:
    """A child as a DataLoader's worker: it lives on after its parent, and may not speak or listen in its name."""
    child = os.fork()
    if child == 0:
        assert rank.watch.is_inherited and rank.watch.failure() is None and rank.watch.failure_descriptor == -1
        rank.watch.fail("a child")
        rank.watch.leave(0)
        say(f"child {os.getpid()}")
        time.sleep(20)
        os._exit(0)


def fork_that_fails(rank: Rank) -> None:
    child = os.fork()
    if child == 0:
        raise ValueError("of the child")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def fork_and_die(rank: Rank) -> None:
    fork(rank)
    subprocess.Popen(["sleep", "5"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def mismatch(rank: Rank) -> None:
    shape = (64, 3, 7, 7) if rank.rank == 0 else (64, 3, 3, 3)
    mine = RankFacts(rank.rank, operation="broadcast", tensors=(Tensor("conv0_weight", shape, "float32"),))
    everyone = [RankFacts.from_json(text) for text in rank.reduce(mine.to_json())]
    found = describe_mismatch(mine, [facts for facts in everyone if facts.rank != rank.rank])
    if found is not None:
        rank.watch.fail(found)
        raise RuntimeError(found)


def exit_caught(rank: Rank) -> None:
    with contextlib.suppress(SystemExit):
        sys.exit(5)
    thread = threading.Thread(target=sys.exit, args=(6,))
    thread.start()
    thread.join()


ACTIONS: dict[str, Callable[[Rank], object]] = {
    "train": lambda rank: None,
    "early": lambda rank: None,
    "kill": lambda rank: os.kill(os.getpid(), signal.SIGKILL),
    "crash": lambda rank: ctypes.string_at(1),
    "stop": lambda rank: os.kill(os.getpid(), signal.SIGSTOP),
    "os_exit": lambda rank: os._exit(0),
    "exit": lambda rank: sys.exit(3),
    "exit_text": lambda rank: sys.exit("no data"),
    "exit_caught": exit_caught,
    "raise": fail,
    "hang": lambda rank: time.sleep(20),
    "hang_native": lambda rank: ctypes.PyDLL(None).usleep(20_000_000),
    "hold_gil": hold_gil,
    "fork": fork,
    "fork_that_fails": fork_that_fails,
    "fork_and_die": fork_and_die,
    "mismatch": mismatch,
}


def main() -> None:
    number, size, folder, silence, action = sys.argv[1:]
    rank = Rank(int(number), int(size), Path(folder), float(silence))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    say("started")
    rank.train(ACTIONS[action], STEP + 1 if action == "early" else STEPS)


if __name__ == "__main__":
    main()
