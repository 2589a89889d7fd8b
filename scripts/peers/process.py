"""A peer's process as the driver sees it: asked, stopped between its turns, ended."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peers.spec import PeerSpec

SCRIPTS = Path(__file__).resolve().parents[1]
LOG_LINES = 15


def absolute_path() -> dict[str, str]:
    """PYTHONPATH for a process that starts in another folder: relative entries would mean something else there."""
    entries = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, entries))}


class PeerError(RuntimeError):
    """A peer failed; the text says which, doing what, and why."""


class PeerUnavailable(PeerError):  # noqa: N818  # not an error: the machine can't run that peer
    """The machine lacks what the peer needs."""


class PeerProcess:
    """One peer. `log` takes what its framework prints; `seconds` is the longest that a command may take."""

    def __init__(self, peer: PeerSpec, threads: int, cpus: Sequence[int], caches: tuple[Path, bool], log: Path,
                 seconds: float) -> None:
        """`caches`: the folder for what the peer keeps of compiled models, and whether OpenVINO may use it, which
        does so on request only."""
        self.peer = peer
        self.log = log
        self.seconds = seconds
        folder, use_cache = caches
        folder.mkdir(parents=True, exist_ok=True)
        kind = [peer.kind, str(threads), ",".join(map(str, cpus)), *([str(folder)] if use_cache else [])]
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "peers.worker", *kind],
                cwd=SCRIPTS,
                env={**peer.environment(threads, str(folder)), **absolute_path()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Let the process run, give it a command, and wait for the answer.

        Raises:
            PeerUnavailable: the machine lacks what the peer needs.
            PeerError: the command failed, the process died or took too long.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        os.kill(self.process.pid, signal.SIGCONT)
        try:
            print(json.dumps({"do": do, **arguments}), file=self.process.stdin, flush=True)
            ready, _, _ = select.select([self.process.stdout], [], [], self.seconds)
            if not ready:
                raise PeerError(f"{self.peer}: no answer to '{do}' within {self.seconds:g} s")
            answer = json.loads(self.process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if "error" in answer:
            if answer["kind"] == "Unavailable":
                raise PeerUnavailable(answer["error"])
            raise PeerError(f"{self.peer}: {do}: {answer['kind']}: {answer['error']}")
        if not answer:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise PeerError(f"{self.peer}: its process ended at '{do}'; it printed\n{tail}")
        return dict(answer)

    def pause(self) -> None:
        """Stop all its threads, also those that would spin while they wait for work; return when they stand."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def close(self) -> None:
        """End it, stopped or not."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
