"""Explanations of ONNX models: whether a model compiles, as what and for which ranges of sizes, and if not, why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ngraph_mxnet.base.errors import UnsupportedError
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.frontends.onnx.importer import Imported, import_model, unknown_operators
from ngraph_mxnet.frontends.onnx.inputs import bind_shapes, input_types, with_batches
from ngraph_mxnet.frontends.onnx.model import Model
from ngraph_mxnet.frontends.onnx.ranges import named_axes, template_of
from ngraph_mxnet.frontends.onnx.runners import first_part
from ngraph_mxnet.frontends.onnx.values import Between, CutError, DataDependentError
from ngraph_mxnet.ir import TensorType
from ngraph_mxnet.ir.graph import graph_cost
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import bind_weights
from ngraph_mxnet.program.ranges import ChangingShapes, RangeExplanation, check_axes, told_by_place


@dataclass(frozen=True, repr=False)
class OnnxExplanation(Facts):
    """Prints as tables; `to_dict` is for programs.

    `reason`: why it does not compile, None if it does; `unknown`: its operators without a rule or definition, in
    subgraphs too. `rest`: why it is compiled in parts, of which what follows tells of the first. `ops`: of the graph
    after the backend's passes. `macs` (multiply-adds) and `operations` (others): as the model is written.
    `weights`: bytes. `precision`: of its convolutions and matrix products; with a recipe, how many are in 8 bits.
    `details`: what the backend tells of it (`Backend.explain`), if asked for.
    """

    backend: str
    inputs: list[str]
    outputs: list[str]
    opsets: dict[str, int]
    operators: dict[str, int]
    reason: str | None = None
    unknown: list[str] = field(default_factory=list)
    rest: str | None = None
    ops: dict[str, int] = field(default_factory=dict)
    macs: int = 0
    operations: int = 0
    weights: int = 0
    precision: str = ""
    details: Any = None
    plans: list[Any] = field(default_factory=list)
    notices: tuple[str, ...] = ()

    @property
    def compiles(self) -> bool:
        return self.reason is None

    @property
    def of_details(self) -> dict[str, Any]:
        """The details, which are of one graph."""
        return {name: entry for name, (entry,) in (self.details.to_dict() if self.details else {}).items()}

    renamed: ClassVar[Mapping[str, str | None]] = {"details": None, "of_details": ""}
    derived = ("compiles", "of_details")
    layout = "onnx"


def explain_onnx(model: Model, shapes: Mapping[str, Sequence[int]], backend: str | None, *, kernels: bool,
                 options: Mapping[str, Any]) -> OnnxExplanation:
    """Import and optimise the model; see `ngraph_mxnet.explain`."""
    chosen = get_backend(backend)
    proto, (shapes, batched) = model.proto.graph, with_batches(model, shapes)
    told = [f"told for a batch of 1, which the model leaves open: {', '.join(batched)}"] * bool(batched)
    found = OnnxExplanation(chosen.name, [value.name for value in model.inputs], [v.name for v in proto.output],
                            model.opsets, _descending(node.op_type for node in proto.node),
                            notices=(*told, *chosen.notices()))
    try:
        imported, rest = _first_part(model, shapes)
        graph = bind_weights(imported.graph, imported.weights)
        found = replace(found, inputs=[f"{p.name}: {p.type}" for p in graph.parameters])
        if rest is None:
            found = replace(found, outputs=[f"{value.name}: {value.type}" for value in graph.results])
        plan = chosen.plan(graph.clone(), options)
        details = chosen.explain([graph]) if kernels else None
        chosen.require_support(graph)
        found = replace(found, precision=chosen.precision_of(graph.clone(), {}))
        PassManager(chosen.pipeline()).run(graph)
    except DataDependentError as error:
        return replace(found, rest=str(error), unknown=unknown_operators(model))
    except UnsupportedError as error:
        return replace(found, reason=str(error), unknown=unknown_operators(model))
    cost = graph_cost(imported.graph)
    constants = [node.output.type.bytes for node in graph.nodes if node.op.name == "constant"]
    if rest is not None:
        found = replace(found, rest=rest, unknown=unknown_operators(model))
    return replace(found, plans=[plan] if plan is not None else [], details=details, macs=cost.macs,
                   operations=cost.operations, weights=sum(constants),
                   ops=_descending(node.op.name for node in graph.nodes if node.op.name != "constant"))


def _first_part(model: Model, shapes: Mapping[str, Sequence[int]]) -> tuple[Imported, str | None]:
    """The model, or what is compiled of it before there are data, and then why it ends there."""
    try:
        imported = import_model(model, shapes, partly=True, between=Between())
        return imported, None if imported.rest is None else imported.reason
    except CutError as cut:
        first = first_part(model, cut)
        if first is None:
            raise
        given = {value.name: shapes[value.name] for value in first.inputs if value.name in shapes}
        imported, rest = _first_part(first, given)
        return imported, str(cut) if rest is None else rest


def _descending(names: Any) -> dict[str, int]:
    return dict(Counter(names).most_common())


def explain_onnx_shapes(model: Model, shapes: Mapping[str, Sequence[int]], axes: Mapping[str, Sequence[int]],
                        backend: str | None) -> RangeExplanation:
    """Compile the model once for all sizes of these axes of its inputs; see `ngraph_mxnet.explain_shapes`."""
    chosen = get_backend(backend)
    types = bind_shapes(model, shapes)
    given = {name: type_ for name, type_ in types.items() if isinstance(type_, TensorType)}
    if given.keys() != types.keys():
        raise UnsupportedError("models whose inputs are no tensors are compiled for each set of shapes")
    check_axes(axes, {name: type_.shape for name, type_ in given.items()})
    dims = {name: type_.dims or (None,) * given[name].rank for name, type_ in input_types(model).items()}
    # Fixed sizes are told as well, so that there is a reason.
    told = told_by_place(axes, [(name, tuple(dim if isinstance(dim, str) else None for dim in shape))
                                for name, shape in dims.items()])
    return RangeExplanation.of_whole(
        model.proto.graph.output[0].name, given, ChangingShapes({**named_axes(dims), **told}, at_once=bool(told)),
        lambda shaped: template_of(import_model(model, shaped, between=Between()), chosen, {}))
