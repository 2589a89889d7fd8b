#!/usr/bin/env python3
"""Serve a small Gluon net over HTTP: requests that come at the same time run as one batch, by `ngraph_mxnet.Batcher`.

    MXNET_SUBGRAPH_BACKEND=NGRAPH python examples/serve_batches.py --port 8000
    MXNET_SUBGRAPH_BACKEND=NGRAPH gunicorn --chdir examples --threads 8 'serve_batches:application()'
    python examples/serve_batches.py --measure http://127.0.0.1:8000 --clients 8

It is a WSGI application: the first line serves it with a thread for each connection and needs nothing but Python, the
second with gunicorn. POST float32 images as bytes, each 3x32x32, one or several; the answer is a JSON list of classes.
Weights are random. The third line, in a process of its own, says how many requests a second a server answers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import numpy as np
from timed import asked

SHAPE = (3, 32, 32)
MOST_IMAGES = 64
MOST_DISCARDED, PIECE = 1 << 26, 1 << 16  # bytes
SIZES = (1, 2, 4, 8)


def small_net(classes: int = 10) -> Any:
    """Three convolutions for images of SHAPE, with random weights, hybridized."""
    import ngraph_mxnet  # isort: skip  # noqa: F401  # makes the import of mxnet work on current NumPy
    import mxnet as mx
    from mxnet.gluon import nn

    mx.random.seed(0)
    net = nn.HybridSequential()
    for channels in (16, 32, 64):
        net.add(nn.Conv2D(channels, 3, padding=1, activation="relu"), nn.MaxPool2D(2))
    net.add(nn.Dense(classes))
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    return net


def predictor(batched: bool = True) -> Callable[[np.ndarray], np.ndarray]:
    """Scores (n, classes) of images (n, 3, 32, 32), for any thread: batched, or one call after the other."""
    from ngraph_mxnet import Batcher

    return Batcher(small_net(), SIZES if batched else (1,), example=np.zeros((1, *SHAPE), np.float32))


def application(batched: bool = True) -> Callable[..., Iterable[bytes]]:
    """The WSGI application; every worker of gunicorn makes its own."""
    predict = predictor(batched)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        images, left = divmod(size, 4 * int(np.prod(SHAPE)))
        if left or not 0 < images <= MOST_IMAGES:
            _discard(environ["wsgi.input"], size)
            status, found = "400 Bad Request", {"error": f"found {size} bytes, expected 1 to {MOST_IMAGES} images of "
                                                         f"float32, each of shape {SHAPE}"}
        else:
            data = np.frombuffer(environ["wsgi.input"].read(size), np.float32).reshape(images, *SHAPE)
            status, found = "200 OK", predict(data).argmax(axis=1).tolist()
        body = json.dumps(found).encode()
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return answer


def _discard(body: Any, size: int) -> None:
    """Read a refused body, up to a bound: a client that still writes when the connection closes sees no answer."""
    for begin in range(0, min(size, MOST_DISCARDED), PIECE):
        body.read(min(PIECE, size - begin))


class ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128


class Handler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """No line for each request."""


def measure(url: str, clients: int, seconds: float) -> dict[str, float]:
    """Requests of one image a second, each client's next when its last is answered, and their milliseconds."""
    body = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32).tobytes()
    taken, _ = asked(url, body, clients, seconds)
    if len(taken) < 2:
        raise SystemExit(f"{url}: no answers")
    return {"clients": clients, "requests_per_s": len(taken) / seconds, "median_ms": statistics.median(taken) * 1e3,
            "p99_ms": statistics.quantiles(taken, n=100)[98] * 1e3}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free; default: %(default)s")
    parser.add_argument("--unbatched", action="store_true", help="one image a call, one call after the other")
    parser.add_argument("--measure", metavar="URL", help="ask the server there instead of serving")
    parser.add_argument("--clients", type=int, default=8, help="threads that ask; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=5, help="for which they ask; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")
    options = parser.parse_args()
    if options.measure:
        found = measure(options.measure, options.clients, options.seconds)
        lines = (f"{name:<15}{value:10.1f}" for name, value in found.items())
        print(json.dumps(found) if options.json else "\n".join(lines))
        return 0
    answer = application(not options.unbatched)
    with make_server("127.0.0.1", options.port, answer, ThreadingServer, Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
