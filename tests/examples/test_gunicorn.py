"""The example's server as gunicorn runs it: several processes, forked before the model was made or after it, each with
several threads, which call a Batcher or the block itself."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

from ngraph_mxnet.base import config

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "examples"
CLIENTS, ROUNDS, PROCESSES = 8, 30, 2
LONG = 120
"""Seconds after which something hangs."""

pytestmark = pytest.mark.skipif(importlib.util.find_spec("gunicorn") is None,
                                reason="gunicorn of the extra examples is not installed")


@contextmanager
def gunicorn(folder: Path, *options: str) -> Iterator[tuple[str, Path]]:
    """The server's address and log. Asked to end it ends with 0, and no process has to be killed for it."""
    log = folder / "log"
    # Newer versions put a socket into this folder, or else into the user's home.
    environment = {**os.environ, "MXNET_SUBGRAPH_BACKEND": "NGRAPH", "OMP_NUM_THREADS": "2",
                   "XDG_RUNTIME_DIR": str(folder)}
    command = [sys.executable, "-m", "gunicorn", "--bind", "127.0.0.1:0", "--workers", str(PROCESSES), "--threads", "4",
               "--timeout", str(4 * LONG), "--graceful-timeout", str(4 * LONG),
               "--pythonpath", f"{EXAMPLES},{HERE}", *options, "served:application()"]
    with log.open("w") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as server:
        try:
            yield address(server, log), log
        finally:
            server.terminate()
            try:
                code = server.wait(LONG)
            finally:
                server.kill()
                print(log.read_text())
    assert code == 0


def address(server: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + LONG
    while server.poll() is None and time.monotonic() < end:
        found = re.search(r"Listening at: (http://127\.0\.0\.1:\d+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.05)
    raise AssertionError("the server does not listen")


@pytest.fixture
def images() -> np.ndarray:
    """Some of each client's own."""
    return np.random.default_rng(0).normal(size=(CLIENTS, 5, 3, 32, 32)).astype(np.float32)


@pytest.fixture
def expected(images: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """MXNet's own scores of them, by the same net in this process."""
    import ngraph_mxnet  # isort: skip  # noqa: F401
    import mxnet as mx

    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("MXNET_SUBGRAPH_BACKEND", "NONE")
    net = importlib.import_module("serve_batches").small_net()
    scores = np.array([net(mx.nd.array(own)).asnumpy() for own in images])
    flat = scores.reshape(-1, scores.shape[-1])
    apart = np.abs(flat[:, None] - flat).max(-1) + np.eye(len(flat))
    assert apart.min() > 1e-2, "another image's scores must not pass for these"
    first, second = np.sort(flat)[:, :-3:-1].T
    assert (first - second).min() > 1e-3, "rounding must not decide about a class"
    return scores


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["each makes the model", "preload"])
def test_every_answer_is_right(options: tuple[str, ...], images: np.ndarray, expected: np.ndarray,
                               tmp_path: Path) -> None:
    processes: defaultdict[str, set[int]] = defaultdict(set)
    together = threading.Barrier(CLIENTS)

    def client(url: str, number: int) -> None:
        end = time.monotonic() + LONG
        rng = np.random.default_rng(number)
        together.wait(LONG)
        done = 0
        # Until both processes have answered: one may be ready long before the other.
        while done < ROUNDS or (len(processes) < PROCESSES and time.monotonic() < end):
            which = rng.permutation(len(images[number]))[: 1 + done % 3]
            for path in ("/", "/batched", "/plain"):
                with urlopen(Request(url + path, images[number][which].tobytes()), timeout=LONG) as response:
                    body = response.read()
                processes[response.headers["X-Process"]].add(int(response.headers["X-Direct-Calls"]))
                scores = expected[number][which]
                if path == "/":
                    assert json.loads(body) == scores.argmax(1).tolist()
                else:
                    np.testing.assert_allclose(np.frombuffer(body, np.float32).reshape(scores.shape), scores,
                                               rtol=1e-4, atol=1e-4)
            done += 1

    with gunicorn(tmp_path, *options) as (url, log):
        with ThreadPoolExecutor(CLIENTS) as pool:
            asked = [pool.submit(client, url, number) for number in range(CLIENTS)]
        for future in asked:
            future.result()
    assert len(processes) == PROCESSES, "both answered, and neither was replaced"
    if config.get("NGRAPH_DIRECT"):
        assert all(len(counts) > 1 for counts in processes.values()), "MXNet has not computed it all"
    assert not re.search("Traceback|Worker .* was sent|exited with code|TIMEOUT", log.read_text())
