"""A peer's process as the driver sees it: asked, stopped between its turns, ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workers import Worker

from peers.spec import PeerSpec

LOG_LINES = 15
PROGRAM = (sys.executable, "-m", "peers.worker")


class PeerError(RuntimeError):
    """A peer failed; the text says which, doing what, and why."""


class PeerUnavailable(PeerError):  # noqa: N818  # not an error: the machine can't run that peer
    """The machine lacks what the peer needs."""


class PeerProcess:
    """One peer. `log` takes what its framework prints; `seconds` is the longest that a command may take."""

    def __init__(self, peer: PeerSpec, threads: int, cpus: Sequence[int], caches: tuple[Path, bool], log: Path,
                 seconds: float, program: Sequence[str] = PROGRAM) -> None:
        """`caches`: the folder for what the peer keeps of compiled models, and whether OpenVINO may use it, which
        does so on request only. `program`: what serves."""
        self.peer = peer
        self.log = log
        self.seconds = seconds
        folder, use_cache = caches
        folder.mkdir(parents=True, exist_ok=True)
        kind = [peer.kind, str(threads), ",".join(map(str, cpus)), *([str(folder)] if use_cache else [])]
        with log.open("w") as errors:
            self.worker = Worker([*program, *kind], peer.environment(threads, str(folder)), errors)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Let the process run, give it a command, and wait for the answer.

        Raises:
            PeerUnavailable: the machine lacks what the peer needs.
            PeerError: the command failed, the process died or took too long.
        """
        os.kill(self.worker.process.pid, signal.SIGCONT)
        self.worker.send(do=do, **arguments)
        try:
            answer = self.worker.answer(self.seconds)
        except TimeoutError:
            raise PeerError(f"{self.peer}: no answer to '{do}' within {self.seconds:g} s") from None
        if answer is None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise PeerError(f"{self.peer}: its process ended at '{do}'; it printed\n{tail}")
        if "error" in answer:
            if answer["kind"] == "Unavailable":
                raise PeerUnavailable(answer["error"])
            raise PeerError(f"{self.peer}: {do}: {answer['kind']}: {answer['error']}")
        return answer

    def pause(self) -> None:
        """Stop all its threads, also those that would spin while they wait for work; return when they stand."""
        os.kill(self.worker.process.pid, signal.SIGSTOP)
        os.waitpid(self.worker.process.pid, os.WUNTRACED)

    def close(self) -> None:
        """End it, stopped or not."""
        self.worker.close()
