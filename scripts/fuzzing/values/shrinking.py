"""Makes a failing trial small: fewer nodes, smaller sizes, defaults. Hypothesis does it, on what it drew."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.database import InMemoryExampleDatabase

from fuzzing.values.trials import Family, Trial

_BYTES = 4096
"""Of random numbers for one trial."""
_TIMES = (signal.SIGPROF, signal.SIGALRM)


class _OverError(BaseException):
    """No time is left; no `Exception`, so that Hypothesis lets it through."""


class Drawn:
    """Trials of one family, by number. `attempt` raises for what is wrong with one."""

    def __init__(self, family: Family, attempt: Callable[[Trial], None]) -> None:
        self._attempt = attempt
        self.best: tuple[Trial, BaseException] | None = None
        self._end = float("inf")
        strategy = st.composite(lambda draw: family.draw(draw))()

        @settings(database=InMemoryExampleDatabase(), deadline=None, phases=(Phase.reuse, Phase.shrink),
                  suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet, print_blob=False)
        @given(strategy)
        def run(trial: Trial) -> None:
            self._run(trial)

        self._test: Any = run

    def _run(self, trial: Trial) -> None:
        if time.monotonic() > self._end:
            raise _OverError
        try:
            self._attempt(trial)
        except Exception as error:
            if self.best is None or trial.size <= self.best[0].size:
                self.best = trial, error
            raise

    def try_one(self, seed: str) -> bool:
        """Draw a trial from `seed` and attempt it; whether one was drawn.

        Raises:
            Exception: that of `attempt`.
        """
        self.best, self._end = None, float("inf")
        return self._test.hypothesis.fuzz_one_input(Random(seed).randbytes(_BYTES)) is not None

    def shrink(self, seconds: float) -> tuple[Trial, BaseException]:
        """The smallest trial that fails, of those that are found in so much time, from the last one that failed.

        A trial that takes longer is broken off, by the time of the CPU on two cores.
        """
        assert self.best is not None
        self._end = time.monotonic() + seconds
        before = signal.signal(signal.SIGPROF, _is_over)
        signal.setitimer(signal.ITIMER_PROF, 2 * seconds)
        try:
            self._test()
        except _OverError:
            pass
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
        return self.best


def _is_over(number: int, frame: object) -> None:
    raise _OverError


def isolated(attempt: Callable[[Trial], None], seconds: int = 60) -> Callable[[Trial], None]:
    """`attempt` in a process of its own, for what ends the process; that process must not have computed anything yet.

    An error in it is as good as none, and so is one that takes longer than `seconds` of the CPU, or twice as long by
    the clock: what is looked for is the end of the process.
    """
    def attempt_isolated(trial: Trial) -> None:
        child = os.fork()
        if not child:
            for number in _TIMES:
                signal.signal(number, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_PROF, seconds)
            signal.alarm(2 * seconds)
            try:
                attempt(trial)
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) not in _TIMES:
            raise RuntimeError(f"a process ends by signal {os.WTERMSIG(status)}")

    return attempt_isolated
