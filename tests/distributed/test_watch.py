"""Failures of ranks, with real processes: who learns of them, when, and how each process ends."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ranks import SILENCE, Job, RankRun

LIMIT = 5.0
"""Seconds within which a failure is known."""
GRACE = 2.0
"""And seconds more for a process whose program does not come to it."""

StartJob = Callable[..., Job]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartJob]:
    jobs: list[Job] = []

    def start(*actions: str, **options: str) -> Job:
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        jobs.append(Job(folder, actions, **options))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


def assert_told(run: RankRun, since: float, text: str) -> None:
    """The watch printed one line, which holds this, in time."""
    assert len(run.told()) == 1, run.lines
    when, line = run.told()[0]
    assert text in line
    assert when - since < LIMIT, f"{when - since:.1f} s"


def assert_failed(job: Job, faulty: int, text: str) -> None:
    """All but the faulty rank were told this, ended with status 1 and did not finalize."""
    since = job.await_line(faulty, "action")
    for rank, run in enumerate(job.runs):
        if rank != faulty:
            assert_told(run, since, text)
            assert run.status == 1
            assert run.ended - since < LIMIT + GRACE
            assert "finalized" not in run.output("out")


def test_a_job_without_failures_ends_together(start: StartJob) -> None:
    job = start("train", "train", "train")
    job.await_ends()
    for run in job.runs:
        assert run.status == 0 and run.output("err") == "" and "finalized" in run.output("out")


@pytest.mark.parametrize(("action", "text", "status"), [
    ("kill", "has ended without a word: it was killed, has crashed", -signal.SIGKILL),
    pytest.param("crash", "has ended without a word", -signal.SIGSEGV, marks=pytest.mark.slow),
    pytest.param("os_exit", "has ended without a word", 0, marks=pytest.mark.slow),
    ("raise", "failed: ValueError: label 12 of 10 classes in the second line", 1),
    ("exit", "failed: it ended by sys.exit(3)", 3),
    pytest.param("exit_text", "failed: it ended by sys.exit('no data')", 1, marks=pytest.mark.slow),
])
def test_a_rank_that_ends_is_known_at_once(start: StartJob, action: str, text: str, status: int) -> None:
    job = start("train", action, "train")
    job.await_ends()
    assert_failed(job, 1, f"rank 1 ({os.uname().nodename}) {text}")
    assert job.runs[1].status == status and job.runs[1].told() == []
    assert "DistributedError: rank 1" in job.runs[0].output("err") and "aborted" in job.runs[0].output("out")


def test_a_program_that_does_not_come_to_the_failure_is_ended(start: StartJob) -> None:
    """Whether it sleeps, or is in a native call that holds the GIL. Here it is rank 0 that fails."""
    job = start("kill", "hang", "hang_native")
    job.await_ends()
    assert_failed(job, 0, "rank 0 (")
    assert all(run.ended - job.await_line(0, "action") > GRACE - 0.5 for run in job.runs[1:])
    assert "Traceback" not in job.runs[1].output("err") + job.runs[2].output("err")


@pytest.mark.parametrize("stopped", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_stopped_rank_is_silent(start: StartJob, stopped: int) -> None:
    job = start(*("stop" if rank == stopped else "train" for rank in range(3)))
    job.await_ends([rank for rank in range(3) if rank != stopped])
    assert_failed(job, stopped, f"rank {stopped} ({os.uname().nodename}) has given no sign of life for {SILENCE:g} s")
    os.kill(job.runs[stopped].process.pid, signal.SIGCONT)
    job.await_ends()
    assert job.runs[stopped].status == 1 and len(job.runs[stopped].told()) == 1  # the others have given it up


@pytest.mark.slow
def test_a_job_that_is_stopped_as_a_whole_goes_on(start: StartJob) -> None:
    job = start("hang", "hang")
    for rank in range(2):
        job.await_line(rank, "action")
    for signal_number, pause in ((signal.SIGSTOP, 2 * SILENCE), (signal.SIGCONT, 1.0)):
        for run in job.runs:
            os.kill(run.process.pid, signal_number)
            time.sleep(0.1)
        time.sleep(pause)
    assert all(run.status is None and run.told() == [] for run in job.runs)


def test_a_rank_that_holds_the_gil_is_alive(start: StartJob) -> None:
    job = start("hold_gil", "hold_gil", HOLD=str(SILENCE + 0.6))
    job.await_ends()
    assert [run.status for run in job.runs] == [0, 0] and job.runs[0].told() == []


@pytest.mark.parametrize("early", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_rank_with_fewer_batches(start: StartJob, early: int) -> None:
    job = start(*("early" if rank == early else "train" for rank in range(2)))
    job.await_ends()
    host, since = os.uname().nodename, job.await_line(early, "action")
    for run in job.runs:
        text = (f"rank {early} ({host}) ended after 4 steps, and rank {1 - early} ({host}) waits for it in step 5: "
                "give all ranks the same number of batches")
        assert_told(run, since, text)
        assert run.status == 1 and "finalized" not in run.output("out")


def test_ranks_that_differ(start: StartJob) -> None:
    job = start("mismatch", "mismatch", "mismatch")
    job.await_ends()
    text = "conv0_weight is not the same on all ranks: (64, 3, 7, 7) on rank 0, (64, 3, 3, 3) on ranks 1 and 2"
    for run in job.runs:
        assert run.status == 1 and text in run.output("err")


def test_a_caught_exit_is_none(start: StartJob) -> None:
    """Nor is one of a thread."""
    job = start("train", "exit_caught")
    job.await_ends()
    assert [run.status for run in job.runs] == [0, 0] and job.runs[1].output("err") == ""


def test_a_child_is_no_rank(start: StartJob) -> None:
    """It neither hides its parent's end, nor speaks for it, nor does an exception in it end the job."""
    job = start("train", "fork_and_die", "fork_that_fails")
    job.await_line(1, "child")
    job.await_ends([0, 2])
    assert_failed(job, 1, "rank 1 (")
    assert "ValueError: of the child" in job.runs[2].output("err")


def test_ctrl_c_ends_all(start: StartJob) -> None:
    """Also a rank in a native call, during which Python does not see it."""
    job = start("hang", "hang_native", "train")
    since = max(job.await_line(rank, "action") for rank in range(3))
    for run in job.runs:
        run.process.send_signal(signal.SIGINT)
    job.await_ends()
    for run in job.runs:
        assert run.ended - since < LIMIT and run.status in (-signal.SIGINT, 1)
        assert "KeyboardInterrupt" in run.output("err")


def test_sigterm_says_why(start: StartJob) -> None:
    """As a launcher ends the others when a rank has failed; and the others know of one that is ended alone."""
    job = start("kill", "hang_native")
    job.await_line(0, "action")
    job.runs[1].process.terminate()
    job.await_ends()
    assert job.runs[1].status == -signal.SIGTERM
    assert "rank 0" in job.runs[1].told()[0][1]
    other = start("hang", "train")
    since = other.await_line(0, "action")
    other.runs[0].process.terminate()
    other.await_ends()
    assert other.runs[0].status == -signal.SIGTERM and other.runs[0].told() == []
    assert_failed(other, 0, "was ended by SIGTERM")
    assert other.runs[0].ended - since < 2.0


FAULTS = {
    "kill": "has ended without a word", "crash": "has ended without a word", "stop": "no sign of life",
    "os_exit": "has ended without a word", "raise": "failed: ValueError", "exit": "failed: it ended by sys.exit(3)",
    "early": "ended after 4 steps", "fork_and_die": "has ended without a word",
}


@pytest.mark.slow
@pytest.mark.parametrize("draw", range(20))
def test_random_faults_with_the_default_limit(start: StartJob, draw: int) -> None:
    source = random.Random(draw)
    size = source.randint(2, 4)
    faulty, fault = source.randrange(size), source.choice(list(FAULTS))
    others = [source.choice(["train", "hang_native" if fault != "early" else "train", "fork"]) for _ in range(size)]
    job = start(*(fault if rank == faulty else other for rank, other in enumerate(others)), silence=4.0)
    job.await_ends([rank for rank in range(size) if rank != faulty])
    assert_failed(job, faulty, FAULTS[fault])


@pytest.mark.slow
def test_a_rank_that_holds_the_gil_for_long(start: StartJob) -> None:
    job = start("hold_gil", "train", "hold_gil", HOLD="6", silence=4.0)
    job.await_ends()
    assert [run.status for run in job.runs] == [0, 0, 0]
