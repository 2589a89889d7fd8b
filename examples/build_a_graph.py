"""Build a small convolutional network by hand, print it, compile it, and run it from four threads.

    python examples/build_a_graph.py [--backend CPU|INTERPRETER]

The results are compared with the interpreter's, which defines what a graph computes.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import ngraph_mxnet as ng


def build() -> ng.Graph:
    """conv -> batch norm -> relu -> residual conv -> pool -> fully connected -> softmax."""
    b = ng.Builder(name="tiny")
    data = b.parameter("data", (2, 3, 16, 16))

    def weight(name: str, *shape: int):
        return b.weight(name, shape)

    b.origin = "example:stem"
    x = b.convolution(data, weight("stem_w", 16, 3, 3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    x = b.batch_norm(x, *(weight(f"bn_{name}", 16) for name in ("gamma", "beta", "mean", "variance")))
    x = b.relu(x)
    b.origin = "example:residual"
    y = b.convolution(x, weight("block_w", 16, 16, 3, 3), pads_begin=(1, 1), pads_end=(1, 1))
    x = b.relu(b.add(x, y))
    b.origin = "example:head"
    x = b.max_pool(x, kernel=(2, 2), strides=(2, 2))
    x = b.reduce_mean(x, axes=(2, 3))
    x = b.matmul(x, weight("fc_w", 10, 16), transpose_b=True)
    return b.results(b.softmax(x))


def random_arrays(graph: ng.Graph, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = {p.name: rng.normal(0, 0.3, p.shape).astype(p.type.element.numpy) for p in graph.parameters}
    arrays["bn_variance"] = np.abs(arrays["bn_variance"]) + 0.5
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", default="CPU", help=f"one of {', '.join(ng.backends())}; default CPU")
    backend = parser.parse_args().backend

    graph = build()
    print(ng.print_graph(graph))
    try:
        executable = ng.compile(graph, backend)
    except ng.NGraphError as error:
        raise SystemExit(f"can't compile for {backend}: {error}") from None
    reference = ng.compile(graph, "INTERPRETER")

    inputs = [random_arrays(graph, seed) for seed in range(8)]
    alone = [executable(arrays)[0] for arrays in inputs]
    with ThreadPoolExecutor(4) as pool:
        together = [results[0] for results in pool.map(executable, inputs)]
    if any(one.tobytes() != other.tobytes() for one, other in zip(alone, together, strict=True)):
        raise SystemExit("a call gave another result beside other calls than alone")
    worst = max(
        float(np.abs(found - reference(arrays)[0]).max()) for found, arrays in zip(alone, inputs, strict=True)
    )
    if not worst < 1e-5:
        raise SystemExit(f"{backend} differs from the interpreter by {worst:.2g}")
    print(
        f"{backend}: 8 calls, alone and from 4 threads, agree bit for bit; "
        f"the interpreter differs by at most {worst:.2g}"
    )


if __name__ == "__main__":
    main()
