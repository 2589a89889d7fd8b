"""A traced network as a graph: its digest, and changed copies of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mxnet.symbol import Symbol

_CONTRACTIONS = {"FullyConnected": "num_hidden", "Convolution": "num_filter", "Deconvolution": "num_filter"}
#: What picks elements by their order: the last bits of its input decide what it gives.
_ORDERING = ("_contrib_box_nms", "topk", "argsort", "sort")

Json = dict[str, Any]


def digest(symbol: Symbol, inputs: Mapping[str, np.ndarray], constants: Mapping[str, np.ndarray]) -> str:
    """Equal for graphs of the same operators, edges, attributes, input shapes and constants.

    Names don't count, and neither does how many channels the last contractions give (the number of classes): those
    from which no other contraction is reached.
    """
    graph = json.loads(symbol.tojson())
    nodes = graph["nodes"]
    last = _last_contractions(nodes)
    order = list(inputs)
    told: list[Any] = [graph["heads"]]
    for index, node in enumerate(nodes):
        variable = node["op"] == "null"  # has the attributes of its operator
        attrs = {} if variable else {key: text for key, text in node.get("attrs", {}).items()
                                     if not key.startswith("__")}
        if index in last:
            del attrs[_CONTRACTIONS[node["op"]]]
        given = node["name"] if variable else ""
        if given in inputs:
            attrs["input"] = [order.index(given), list(inputs[given].shape)]
        elif given in constants:
            attrs["constant"] = hashlib.sha256(constants[given].tobytes()).hexdigest()
        told.append([node["op"], sorted(attrs.items()), [edge[:2] for edge in node["inputs"]]])
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def _last_contractions(nodes: list[Json], ends: Collection[str] = ()) -> set[int]:
    """Those from which no other contraction is reached, but through an operator of `ends`."""
    leads_on: set[int] = set()  # to a contraction
    last = set()
    for index in reversed(range(len(nodes))):
        contracts = nodes[index]["op"] in _CONTRACTIONS
        if contracts and index not in leads_on:
            last.add(index)
        if contracts or (index in leads_on and nodes[index]["op"] not in ends):
            leads_on.update(edge[0] for edge in nodes[index]["inputs"])
    return last


def with_statistics(symbol: Symbol) -> tuple[Symbol, list[tuple[str, str, float]]]:
    """A graph that gives, run for training, the mean and the inverse deviation of each batch normalization's data; and
    of each the names of its moving mean and variance, and epsilon."""
    graph = json.loads(symbol.tojson())
    heads, names = [], []
    for index, node in enumerate(graph["nodes"]):
        if node["op"] not in ("BatchNorm", "_contrib_SyncBatchNorm"):
            continue
        node["op"] = "BatchNorm"
        attrs = {key: text for key, text in node.get("attrs", {}).items() if key not in ("key", "ndev")}
        node["attrs"] = {**attrs, "output_mean_var": "True", "use_global_stats": "False"}
        heads += [[index, 1, 0], [index, 2, 0]]
        mean, variance = (graph["nodes"][edge[0]]["name"] for edge in node["inputs"][3:5])
        names.append((mean, variance, float(attrs.get("eps", 1e-3))))
    graph["heads"] = heads
    return _load(graph), names


def of_last_contractions(symbol: Symbol) -> tuple[Symbol, list[list[str]]]:
    """A graph that gives the last contractions' results; and of each the names of its weights and bias.

    The last before an operator that orders its input count, too: an R-CNN's regions are chosen by scores.
    """
    graph = json.loads(symbol.tojson())
    nodes = graph["nodes"]
    last = sorted(_last_contractions(nodes, _ORDERING))
    graph["heads"] = [[index, 0, 0] for index in last]
    names = [[nodes[edge[0]]["name"] for edge in nodes[index]["inputs"][1:]] for index in last]
    return _load(graph), names


def in_stages(symbol: Symbol) -> tuple[Symbol, Symbol, list[str]]:
    """The graph cut before each operator that orders its input.

    Returns:
        The graph with these inputs as outputs before its own; the same with variables in their place, so that each
        stage can be given another's input; and the variables' names. No variables where nothing is ordered.
    """
    graph = json.loads(symbol.tojson())
    nodes = graph["nodes"]
    cuts: list[tuple[int, int]] = []
    for node in nodes:
        edge = tuple(node["inputs"][0][:2]) if node["op"] in _ORDERING else None
        if edge and edge not in cuts:
            cuts.append(edge)
    names = [f"stage{number}" for number in range(len(cuts))]
    shift = len(cuts)
    given = [{"op": "null", "name": name, "inputs": []} for name in names]
    moved = []
    for node in nodes:
        edges = [[source + shift, output, 0] for source, output, *_ in node["inputs"]]
        if node["op"] in _ORDERING:
            edges[0] = [cuts.index((edges[0][0] - shift, edges[0][1])), 0, 0]
        moved.append({**node, "inputs": edges})
    heads = [[source, output, 0] for source, output in cuts] + graph["heads"]
    whole = {"nodes": nodes, "heads": heads, "attrs": graph["attrs"]}
    staged = {"nodes": given + moved, "heads": [[head[0] + shift, head[1], 0] for head in heads],
              "attrs": graph["attrs"]}
    return _load(whole), _load(staged), names


def _load(graph: Json) -> Symbol:
    import mxnet as mx

    nodes = graph["nodes"]
    arguments = [index for index, node in enumerate(nodes) if node["op"] == "null"]
    return mx.sym.load_json(json.dumps({"nodes": nodes, "arg_nodes": arguments, "heads": graph["heads"],
                                        "attrs": graph["attrs"]}))
