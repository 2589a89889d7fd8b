"""A model as a file of ONNX, which is there only once it was compared."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.base.files import new_file, replacement
from ngraph_mxnet.base.rendered import Facts
from ngraph_mxnet.frontends.model import Model, Sizes, model_of
from ngraph_mxnet.frontends.onnx.model import Model as ModelFile
from ngraph_mxnet.frontends.onnx.model import read_model
from ngraph_mxnet.frontends.onnx.reference import runtime_results, runtime_version
from ngraph_mxnet.frontends.onnx.writer import DEFAULT_OPSET
from ngraph_mxnet.frontends.onnx.writer.linear import ATTENTION
from ngraph_mxnet.frontends.onnx.writer.model import inputs_of, output_names, written
from ngraph_mxnet.ir.graph import Graph, Node
from ngraph_mxnet.ir.module import Changes, Derivation, result_names
from ngraph_mxnet.ir.ranges import Guards, assuming
from ngraph_mxnet.ir.sizes import Atom
from ngraph_mxnet.ir.types import RANDOM_STATE
from ngraph_mxnet.ops.bodies import bodies_of
from ngraph_mxnet.ops.random import uniform_of
from ngraph_mxnet.passes.base import PassManager
from ngraph_mxnet.passes.fuse import attention_fusion
from ngraph_mxnet.passes.pipelines import biases, folding, simplifying, swish_fusion
from ngraph_mxnet.passes.simplify import Cse, DeadCode
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import Ranged, compile, made_at_some_sizes
from ngraph_mxnet.program.differences import Tolerance, but_few, in_order_of
from ngraph_mxnet.program.differences import compare as compare_arrays
from ngraph_mxnet.program.feeds import random_inputs
from ngraph_mxnet.quantisation.apply import Fit, QuantizeProducts, Recipe, read_recipe
from ngraph_mxnet.quantisation.byte_products import quantize_early, sums_of_pairs
from ngraph_mxnet.quantisation.division import DivideData

TOLERANCE, ROUGHLY = Tolerance(1e-4), Tolerance(2e-3)
"""Of an output's difference from the definitions'. Roughly: of outputs of float16; in ONNX Runtime of images of sizes
that are symbols, interpolated between their corners: MXNet's places are rounded, ONNX's are not."""
_GIVEN = "/given"
"""The end of the name by which readers of numbers of 8 bits read the definitions'."""
_DRAWN = "random.uniform"
"""The begin of the names of inputs in place of what a model draws."""
STEPS = 4
"""To make the model, check it, compare it, and write the file."""
LIMIT = (1 << 31) - (1 << 26)
"""A message of protobuf is not much larger: so many bytes of weights go into a file of their own."""
_SCALES = (1, 2, 3, 5, 8, 16, 24, 32, 48, 64, 96, 128, 224, 256, 299, 384, 512, 1024)
_SEEDS = (11, 12, 13)
"""Of random inputs. Those behind the first are for models that sort."""
_QUANTISED_FOR, _RUNTIME = "CPU", "ONNX Runtime"
_LACKS = "NOT_IMPLEMENTED"
"""How ONNX Runtime's errors begin that tell of an operator, or of one of an element type, that it doesn't have."""


@dataclass(frozen=True)
class Compared(Facts):
    """A comparison of the model's outputs with the definitions of the graph (`INTERPRETER`).

    Attributes:
        what: which read and ran the model.
        sizes: of the symbols, where sizes are ranges.
        difference: the largest of an output, of its greatest element. None if it doesn't run the model.
        reason: why it doesn't.
    """

    what: str
    sizes: Mapping[str, int]
    difference: float | None
    reason: str = ""

    def __str__(self) -> str:
        at = "".join(f", {name}={size}" for name, size in self.sizes.items())
        return f"{self.what}{at}: " + (f"differs by {self.difference:.1e}" if self.difference is not None
                                       else f"not compared, {self.reason}")


@dataclass(frozen=True, repr=False)
class OnnxFile(Facts):
    """What was written.

    Attributes:
        file: its path.
        bytes: with those of the file of weights.
        inputs, outputs: their types by name.
        nodes: how many there are of each operator.
        assumed: of sizes that are ranges, what must hold of them.
        compared: in which the file was found right, before it was there.
        seconds: all that took.
    """

    file: str
    bytes: int
    opset: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    nodes: Mapping[str, int]
    assumed: tuple[str, ...]
    compared: tuple[Compared, ...]
    seconds: float

    layout = "onnx_file"


def write_file(model: Model, path: str | Path, sizes: Sizes, *, opset: int = DEFAULT_OPSET, optimise: bool = False,
               recipe: Any = None, external_data: bool = False, compare: bool = True,
               metadata: Mapping[str, str] | None = None,
               advance: Callable[[], None] = lambda: None) -> OnnxFile:
    """Write the model as `ngraph_mxnet.to_onnx` does, which has the arguments and errors. `advance` is called after
    each of the STEPS."""
    start, path = time.perf_counter(), Path(path)
    wanted = None if recipe is None else read_recipe(recipe)
    graph, weights, guards = _made(model, sizes)
    with assuming(guards):
        if wanted is not None:
            _quantize(graph, wanted)
        checked, stages = _with_stages(_with_draws_given(graph))
        simplify(graph, opset, optimise=optimise)
        proto = written(graph, weights, opset, metadata)
        judged = proto
        if stages or _is_drawn(checked):
            staged = checked.clone()
            simplify(staged, opset, optimise=optimise)
            judged = _cut(written(staged, weights, opset), stages)
    narrow = [f"  {guard}, for {guard.why}" for guard in guards.found.values() if guard.is_narrow]
    if narrow:
        raise UnsupportedError("these sizes can't stay ranges; give numbers:\n" + "\n".join(narrow))
    advance()
    is_large = sum(len(tensor.raw_data) for tensor in proto.graph.initializer) >= LIMIT
    _check(_without_data(proto) if is_large else proto)
    advance()
    if is_large or not compare:
        why = "as asked" if not compare else "weights of 2 GB fit no message"
        compared: tuple[Compared, ...] = (Compared("nothing", {}, None, why),)
    else:
        compared = tuple(_compared(judged, checked, weights, guards, checked.symbols()))
    advance()
    size = _save(proto, path, external=external_data or is_large)
    advance()
    nodes = Counter(node.op_type for node in proto.graph.node)
    inputs = {value.name: str(value.type) for value in inputs_of(graph, weights)}
    outputs = dict(zip(output_names(graph), (str(value.type) for value in graph.results), strict=True))
    return OnnxFile(str(path), size, opset, inputs, outputs, dict(nodes.most_common()),
                    tuple(map(str, guards.found.values())), compared, time.perf_counter() - start)


def _made(model: Model, sizes: Sizes) -> tuple[Graph, Mapping[str, Any], Guards]:
    """The model's graph and weights, and what holds of sizes that are ranges."""
    model.require_source()
    model.check(shapes=sizes)
    model.require_sizes(sizes)
    model.require_weights(sizes)
    made = model.graph(sizes, keep_loops=True)
    if not isinstance(made, Ranged):
        return *made(), Guards()
    (graph, weights), guards = made_at_some_sizes(made.make, made.symbols)
    return graph, weights, guards


def simplify(graph: Graph, opset: int = DEFAULT_OPSET, *, optimise: bool = False) -> None:
    """Make the graph of a model as it is written, in place: without what computes nothing, with biases in convolutions
    and products, and with attention where the opset has it. `optimise`: with batch normalizations and arithmetic by
    channel in weights, too. Bodies of loops and choices are made so, too."""
    of_bytes = any(node.op.name == "dequantize" for node in graph.nodes)
    passes = [*simplifying(), *((attention_fusion(),) if opset >= ATTENTION else ()),
              *((folding(), swish_fusion()) if optimise else (biases(),))]
    PassManager(passes, disable=("constant_folding",) if of_bytes else ()).run(graph)  # weights stay bytes
    for node in graph.nodes:
        for name, body in bodies_of(node).items():
            node.attrs[name] = body.clone()
            simplify(node.attrs[name], opset, optimise=optimise)


def _quantize(graph: Graph, recipe: Recipe) -> None:
    """Put the layers of the recipe between pairs of `quantize` and `dequantize`. Raises CalibrationError: the recipe is
    of another model."""
    PassManager(get_backend(_QUANTISED_FOR).pipeline()).run(graph)  # by its graphs recipes tell layers
    fit = Fit.of(recipe, graph)
    fit.require()
    found = fit.recipe
    PassManager([DivideData(found.factors, found.scales), QuantizeProducts(found.scales, found.means, in_pairs=True),
                 quantize_early(), Cse(), sums_of_pairs(), DeadCode()]).run(graph)


def _check(proto: onnx.ModelProto) -> None:
    """Raises ModelError: ONNX's own checker or its inference of shapes finds a fault, which is ours."""
    try:
        onnx.checker.check_model(proto)
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ModelError(f"ONNX's checker refuses what was written; please report it: {error}") from None


def _without_data(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which large weights are inputs."""
    bare = onnx.ModelProto()
    bare.ir_version = proto.ir_version
    bare.opset_import.extend(proto.opset_import)
    bare.graph.name = proto.graph.name
    bare.graph.node.extend(proto.graph.node)
    bare.graph.input.extend(proto.graph.input)
    bare.graph.output.extend(proto.graph.output)
    for tensor in proto.graph.initializer:
        if len(tensor.raw_data) < 1 << 10:
            bare.graph.initializer.append(tensor)
        else:
            bare.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return bare


def _draws(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op.name == "random_uniform"]


def _with_draws_given(graph: Graph) -> Graph:
    """A copy of the graph whose random numbers are inputs, so that all who run it compute with the same ones."""
    copy = graph.clone()
    copy.replace({node.output: copy.add_parameter(node.output.type, f"{_DRAWN}{number}")
                  for number, node in enumerate(_draws(copy))})
    copy.remove_dead()
    copy.parameters = [value for value in copy.parameters if value.name != RANDOM_STATE]
    return copy


def _is_drawn(graph: Graph) -> bool:
    """True if the graph computes with random numbers that are given."""
    return any(value.name.startswith(_DRAWN) for value in graph.parameters)


def _with_stages(graph: Graph) -> tuple[Graph, list[str]]:
    """A copy of the graph that has the numbers of 8 bits of data among its results, too, and the names of these.

    A value between two such numbers may become either, and what follows then differs. So each stage is compared by
    itself, from the definitions' numbers to the next ones.
    """
    copy, derivation = graph.clone(), Derivation()
    found = [node.output for node in copy.nodes
             if node.op.name == "quantize" and derivation.of(node.output) is Changes.WITH_CALLS]
    names = [f"stage{number}" for number in range(len(found))]
    copy.names = [*result_names(copy), *names]
    copy.results = [*copy.results, *found]
    return copy, names


def _cut(proto: onnx.ModelProto, stages: Sequence[str]) -> onnx.ModelProto:
    """The model, in place, whose readers of these outputs read inputs of their own."""
    given = {name: name + _GIVEN for name in stages}
    for node in proto.graph.node:
        node.input[:] = [given.get(name, name) for name in node.input]
    for output in proto.graph.output:
        if output.name in given:
            proto.graph.input.append(output)
            proto.graph.input[-1].name = given[output.name]
    return proto


def _bindings(guards: Guards, symbols: list[Atom]) -> Iterator[dict[str, int]]:
    """Small sizes within the bounds, of which all that is assumed holds: at most two sets."""
    found: list[dict[str, int]] = []
    for scale in _SCALES if symbols else ():
        binding = {atom.text: min(max(scale + place, atom.low), atom.high) for place, atom in enumerate(symbols)}
        if binding not in found and all(guard.holds(binding) for guard in guards.found.values()):
            found.append(binding)
        if len(found) == 2:
            break
    if symbols and not found:
        raise ModelError("no small sizes meet what is assumed of them: "
                         + ", ".join(map(str, guards.found.values())) + "; give numbers, or other ranges")
    yield from found or [{}]


def _compared(proto: onnx.ModelProto, graph: Graph, weights: Mapping[str, Any], guards: Guards,
              symbols: list[Atom]) -> Iterator[Compared]:
    """Raises ModelError: an output differs; the text names it."""
    model, seeds = read_model(proto), _SEEDS if _sorts(graph) or _is_drawn(graph) else _SEEDS[:1]
    for binding in _bindings(guards, symbols):
        at = graph.at(binding) if symbols else graph
        for seed in seeds:
            try:
                yield from list(_compared_at(model, at, weights, binding, seed))
                break
            except DifferentError:
                if seed == seeds[-1]:
                    raise


def _sorts(graph: Graph) -> bool:
    """True if an output may be in another order, or have another box, for a rounding of numbers nearly equal."""
    return any(node.op.name in ("argsort", "box_nms") for node in graph.nodes)


def _compared_at(model: ModelFile, graph: Graph, weights: Mapping[str, Any], binding: Mapping[str, int],
                 seed: int) -> Iterator[Compared]:
    random = np.random.default_rng(seed)
    arrays = random_inputs(random, graph, weights)
    arrays |= {name: uniform_of(random.integers(0, 1 << 32, array.shape, np.uint64))
               for name, array in arrays.items() if name.startswith(_DRAWN)}
    with np.errstate(all="ignore"):
        expected = compile(graph, "INTERPRETER", weights)(*arrays.values())
    names = output_names(graph)
    given = {name + _GIVEN: array for name, array in zip(names, expected, strict=True)}
    read = {value.name: {**arrays, **given}[value.name] for value in model.proto.graph.input}
    for what, run in _RUNNERS.items():
        try:
            results = run(model, read, names)
        except ModelError as error:
            if _LACKS not in str(error):
                raise
            yield Compared(what, binding, None, str(error).split(_LACKS)[-1].strip(" :"))
            continue
        if results is not None:
            yield Compared(what, binding, _difference(what, names, results, expected, graph, binding))


def _by_runtime(model: Any, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> list[Any] | None:
    return runtime_results(model, arrays, names) if runtime_version() is not None else None


def _by_reading(model: Any, arrays: Mapping[str, np.ndarray], names: Sequence[str]) -> list[Any]:
    shapes = {name: array.shape for name, array in arrays.items()}
    executable = model_of(model.proto).executable(shapes, "CPU", {})
    return list(executable(*(arrays[port.name] for port in executable.inputs)))


_RUNNERS: Mapping[str, Callable[..., list[Any] | None]] = {
    _RUNTIME: _by_runtime, "read back, on the CPU": _by_reading}


def _usual(what: str, graph: Graph, binding: Mapping[str, int]) -> Tolerance:
    """Of outputs of float32."""
    between = any(node.op.name == "resize" and node.attrs["mode"] != "nearest" and node.attrs["corners"]
                  for node in graph.nodes)
    return ROUGHLY if binding and between and what == _RUNTIME else TOLERANCE


class DifferentError(ModelError):
    """An output of what was written is not the model's."""


def _difference(what: str, names: Sequence[str], results: list[Any], expected: Any, graph: Graph,
                binding: Mapping[str, int]) -> float:
    worst, usual = 0.0, _usual(what, graph, binding)
    for name, found, right in zip(names, results, expected, strict=True):
        found, right = np.asarray(found), np.asarray(right)
        if (found.dtype, found.shape) != (right.dtype, right.shape):
            raise ModelError(f"output {name} by {what}: found {found.dtype}{list(found.shape)}, expected "
                             f"{right.dtype}{list(right.shape)}")
        allowed = ROUGHLY if right.dtype == np.float16 and usual is TOLERANCE else usual
        placed = in_order_of(found, right, allowed) if _sorts(graph) else found
        if _is_drawn(graph):
            placed = but_few(placed, right, allowed)
        difference = compare_arrays(placed, right, allowed)
        share = difference.share or 0.0
        if not difference.agrees:
            raise DifferentError(f"output {name} by {what} differs by {share:.1e} of its greatest element from the "
                                 f"definitions of the model; at most {allowed.share:.0e} is right. No file was "
                                 "written; compare=False, --no-compare, writes it as it is")
        worst = max(worst, share)
    return worst


def _save(proto: onnx.ModelProto, path: Path, *, external: bool) -> int:
    """The bytes that were written. Weights in a file of their own lie in `PATH.data`."""
    if not external:
        with new_file(path) as file:
            file.write(proto.SerializeToString())
        return path.stat().st_size
    data = path.with_name(path.name + ".data")
    # Both are whole before either takes the place of an older one.
    with new_file(path) as out, replacement(data) as place, open(place, "wb") as file:
        for tensor in proto.graph.initializer:
            if len(tensor.raw_data) >= 1 << 10:
                file.seek(-(-file.tell() // 4096) * 4096)  # so that a runtime can map them
                onnx.external_data_helper.set_external_data(tensor, data.name, file.tell(), len(tensor.raw_data))
                file.write(tensor.raw_data)
                tensor.ClearField("raw_data")
                tensor.data_location = onnx.TensorProto.EXTERNAL
        out.write(proto.SerializeToString())
    return path.stat().st_size + data.stat().st_size


