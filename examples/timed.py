"""How long a call or a request takes, for the examples."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit


def median_ms(call: Callable[[], Any], rounds: int = 300) -> float:
    """Of calls that wait for their result, behind some that don't count."""
    for _ in range(20):
        call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * sorted(times)[rounds // 2]


def asked(url: str, body: bytes, clients: int, seconds: float,
          headers: Mapping[str, str] | None = None) -> tuple[list[float], str]:
    """The seconds of each request, and the last answer. Each client asks again as soon as it is answered.

    Raises:
        SystemExit: the server refuses, or is not there.
    """
    place = urlsplit(url)
    taken: list[float] = []
    failed: list[str] = []
    last = ""

    def client() -> None:
        nonlocal last
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        while time.perf_counter() < end and not failed:
            begin = time.perf_counter()
            try:
                connection.request("POST", place.path or "/", body, dict(headers or {}))
                response = connection.getresponse()
                text = response.read().decode()
            except (OSError, http.client.HTTPException) as error:
                failed.append(str(error))
                break
            if response.status != 200:
                failed.append(f"{response.status}: {text}")
            taken.append(time.perf_counter() - begin)
            last = text
        connection.close()

    end = time.perf_counter() + seconds
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed or not taken:
        raise SystemExit(f"{url}: {failed[0] if failed else 'no answers'}")
    return taken, last
