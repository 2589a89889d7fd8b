"""What gunicorn serves in `test_gunicorn.py`: the example, and scores of its net, by a Batcher and without."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import ngraph_mxnet  # isort: skip  # noqa: F401  # makes the import of mxnet work on current NumPy
import mxnet as mx
import numpy as np
import serve_batches

from ngraph_mxnet import _core


def application() -> Callable[..., Iterable[bytes]]:
    """`/` is the example; `/batched` and `/plain` answer with scores, as bytes. Each says which process it is, and
    how many calls have gone past MXNet's op there."""
    net = serve_batches.small_net()
    net(mx.nd.zeros((1, *serve_batches.SHAPE)))  # threads must not meet where parameters get their shapes
    example = serve_batches.application()
    scores = {"/batched": serve_batches.predictor(), "/plain": lambda images: net(mx.nd.array(images)).asnumpy()}

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        facts = [("X-Process", str(os.getpid())), ("X-Direct-Calls", str(_core.direct_calls()))]
        if environ["PATH_INFO"] not in scores:
            return example(environ, lambda status, headers: start_response(status, [*headers, *facts]))
        data = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        images = np.frombuffer(data, np.float32).reshape(-1, *serve_batches.SHAPE)
        body = scores[environ["PATH_INFO"]](images).tobytes()
        start_response("200 OK", [("Content-Length", str(len(body))), *facts])
        return [body]

    return answer
