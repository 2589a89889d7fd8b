"""NGRAPH_PROFILE: a Chrome trace (chrome://tracing, ui.perfetto.dev) of compiling and running, written at exit.

Spans come from two sides: Python's own (`span`: compiling, passes) and those of a `Source`, such as the executor,
which records without the GIL. Whatever goes wrong here is a warning: a program runs traced as it does untraced.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ngraph_mxnet.base import config

VARIABLE = "NGRAPH_PROFILE"
EVENTS = 1 << 18
"""The most that are kept of each side: the last ones. As JSON about 300 bytes each."""

CLOCK_LAG = 0.05
"""Seconds, at most, by which a file system's clock is behind: it advances by timer ticks."""

Event = dict[str, Any]
"""One event of Chrome's format; `ts` and `dur` are microseconds of the steady clock, which is `perf_counter`'s."""


class Source(Protocol):
    """Records spans of its own from `start` on."""

    def start(self, most: int) -> None:
        """Keep about the last `most` events."""

    def take(self) -> tuple[list[Event], int]:
        """Return the recorded events and the number of events that were dropped, and forget the recorded ones."""


class Recorder:
    """The events of this process. `path` is absolute; `%p` in its name is the process's number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sources: list[Source] = []
        self._start(forked=False)

    def _start(self, forked: bool) -> None:
        self._forked, self._since = forked, time.time() - CLOCK_LAG
        self._spans: deque[Event] = deque(maxlen=EVENTS)
        self._count = 0
        self._written = False

    def add_source(self, source: Source) -> None:
        """Start the source and ask it at the end; a second one of its kind is ignored."""
        if not any(type(known) is type(source) for known in self._sources):
            self._sources.append(source)
            source.start(EVENTS)

    def add(self, name: str, category: str, begin: float, seconds: float, args: dict[str, Any]) -> None:
        """A span of the calling thread; `begin` is `time.perf_counter()`'s."""
        self._count += 1
        self._spans.append({"name": name, "cat": category, "ph": "X", "ts": begin * 1e6, "dur": seconds * 1e6,
                            "pid": os.getpid(), "tid": threading.get_native_id(), "args": args})

    def after_fork(self) -> None:
        """In the child: begin anew."""
        self._start(forked=True)

    def write(self) -> None:
        """Write what was recorded, once. A forked child that recorded nothing writes no file."""
        if self._written:
            return
        self._written = True
        events, dropped = list(self._spans), self._count - len(self._spans)
        for source in self._sources:
            found, lost = source.take()
            events += found
            dropped += lost
        if self._forked and not events:
            return
        logger = config.logger(__name__)
        if dropped:
            logger.warning("%s: the last %d events were kept, %d earlier ones dropped", VARIABLE, len(events), dropped)
        try:
            logger.info("%s: wrote %s", VARIABLE, self._write_file(events, dropped))
        except OSError as error:
            logger.warning("%s: the trace could not be written: %s", VARIABLE, error)

    def _write_file(self, events: list[Event], dropped: int) -> Path:
        pid = os.getpid()
        wanted = self.path.with_name(self.path.name.replace("%p", str(pid)))
        numbered = wanted if wanted != self.path else wanted.with_name(f"{wanted.stem}.{pid}{wanted.suffix}")
        temporary = wanted.with_name(f".{wanted.name}.{pid}")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                _dump(file, _names(events, pid) + events, dropped)
            return _publish(temporary, numbered if self._forked else wanted, numbered, self._since)
        finally:
            temporary.unlink(missing_ok=True)


def _names(events: list[Event], pid: int) -> list[Event]:
    """Metadata events that name the threads; the process's first thread has its number."""
    def name(tid: int) -> Event:
        text = "main thread" if tid == pid else f"thread {tid}"
        return {"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": text}}

    return [name(tid) for tid in sorted({event["tid"] for event in events})]


def _dump(file: Any, events: list[Event], dropped: int) -> None:
    """One event a line: a text of all at once would take as much memory again."""
    file.write('{"displayTimeUnit": "ms", "otherData": ')
    json.dump({"dropped events": dropped}, file)
    file.write(', "traceEvents": [')
    for number, event in enumerate(events):
        file.write((",\n" if number else "\n") + json.dumps(event))
    file.write("\n]}\n")


def _publish(temporary: Path, wanted: Path, numbered: Path, since: float) -> Path:
    """Rename to `wanted`, or to `numbered` when another process wrote `wanted` after the time `since`."""
    folder = os.open(wanted.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # two processes may look and rename at the same time
        taken = wanted.exists() and wanted.stat().st_mtime >= since
        return temporary.replace(numbered if taken else wanted)
    finally:
        os.close(folder)


_recorder: Recorder | None = None
_refused = ""  # the variable's value for which a warning was given


def recorder() -> Recorder | None:
    """The recorder of this process, which starts as soon as this finds NGRAPH_PROFILE set; None while it is not."""
    global _recorder, _refused
    if _recorder is None:
        text = config.get(VARIABLE)
        if text and text != _refused:
            path = Path(text).expanduser().absolute()
            problem = _problem(path)
            if problem:
                _refused = text
                config.logger(__name__).warning("%s=%s: %s; no trace is recorded", VARIABLE, text, problem)
            else:
                _recorder = Recorder(path)
                _write_at_exit(_recorder)
    return _recorder


def _problem(path: Path) -> str | None:
    """Why the trace can't be written there."""
    if path.is_dir():
        return "it is a folder, expected the name of a file"
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if not os.access(path.parent, os.W_OK):
        return f"the folder {path.parent} can't be written to"
    return None


def _write_at_exit(started: Recorder) -> None:
    """At the end of this process and of its forked children; those of `multiprocessing` skip `atexit`."""
    from multiprocessing import util

    atexit.register(started.write)
    os.register_at_fork(after_in_child=started.after_fork)
    util.register_after_fork(started, lambda forked: util.Finalize(None, forked.write, exitpriority=0))


@contextmanager
def span(name: str, category: str, **args: Any) -> Iterator[None]:
    """Record the time that the body takes, if NGRAPH_PROFILE is set."""
    active = recorder()
    if active is None:
        yield
        return
    begin = time.perf_counter()
    try:
        yield
    finally:
        active.add(name, category, begin, time.perf_counter() - begin, args)
