"""The table of rules: which MXNet operator lowers how; the conversions around what a rule computes, and the checks.

    @rule("FullyConnected", parameters=(1, 2))
    def fully_connected(b, attrs, x, weight, bias=None):
        ...
        return value                      # or one value for each output

`types` says which element types it takes, and in which it computes. A rule appends IR to `b`, and raises
UnsupportedError with the reason when it can't lower the node. It serves all names of its operator. Operators that stay
with MXNet on purpose stand in `LEFT`, each with the reason.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ngraph_mxnet.base import registry
from ngraph_mxnet.base.errors import TypeRuleError, UnsupportedError
from ngraph_mxnet.frontends.mxnet.attrs import REQUIRED, Attrs, Halves, canonical
from ngraph_mxnet.frontends.mxnet.symbol_json import Edge, SymbolGraph, SymbolNode
from ngraph_mxnet.ir import Builder, ElementType, Value
from ngraph_mxnet.ir.ranges import because
from ngraph_mxnet.ir.sizes import is_symbolic
from ngraph_mxnet.ir.types import element_type, f16, f32
from ngraph_mxnet.ops.compositions import iota

TypedBy = int | Callable[[Sequence[ElementType]], int]
Lowering = Callable[..., "Value | Sequence[Value]"]
"""Takes a builder, the node's attributes (`Call`), and its operands; gives one value for each output."""
_Lowering = TypeVar("_Lowering", bound=Lowering)


class Call(Attrs):
    """The attributes of `node`, which is being lowered."""

    def __init__(self, node: SymbolNode) -> None:
        super().__init__(node.attrs, node.origin)
        self.node = node


@dataclass(frozen=True)
class Types:
    """The element types that a rule's inputs may have, and what the importer does about them.

    `in_f32`: those that are converted to f32 before the rule sees them; if input `Rule.typed_by` is one of these, the
    rule's f32 results are converted back to its type. `moves`: nothing is computed, so f16 is converted only where it
    lives in f32 already (`frontends/mxnet/attrs.py`).
    """

    elements: tuple[str, ...]
    in_f32: tuple[str, ...] = ("f16",)
    moves: bool = False


_INTEGERS = ("i32", "i64", "i8", "u8")
_NUMBERS = ("f16", "f32", "f64", *_INTEGERS)

COMPUTED = Types(("f16", "f32"))
FLOATS = Types(("f16", "f32", "f64"))
NUMBERS = Types(_NUMBERS)
"""Integers too, in which the rule adds and multiplies."""
MATHS = Types(_NUMBERS, in_f32=("f16", *_INTEGERS))
"""MXNet's functions compute floats of integers and cut the result off."""
MOVED = Types((*_NUMBERS, "bool"), moves=True)
"""Every type; results have the type of input `typed_by`."""
EXACT = Types((*_NUMBERS, "bool"), in_f32=())
"""Every type as it is, f16 included: the rule sees to the types of its results."""
LOGIC = Types((*_NUMBERS, "bool"))
"""Every type. f16 is computed in f32, and an f32 result of f16 inputs becomes f16 again."""


@dataclass(frozen=True)
class Rule:
    """How one MXNet operator lowers.

    `operands`: (least, most) inputs. `parameters`: the inputs that hold weights, which seldom change.
    `ignored`: attributes that do not change what inference computes. `typed_by`: the input whose element type the
    results have (see `Types`), or how to find it from the inputs' element types. `result`: the attribute that, where it
    is set, names the results' element type.
    """

    names: tuple[str, ...]
    lower: Lowering
    operands: tuple[int, int]
    parameters: frozenset[int]
    ignored: tuple[str, ...]
    types: Types = COMPUTED
    typed_by: TypedBy = 0
    result: str = ""

    @property
    def doc(self) -> str:
        return (self.lower.__doc__ or "").strip()


ANY = 1 << 20

_RULES: dict[str, Rule] = {}
_DRAWING: dict[str, Rule] = {}
"""The rules of operators that draw random numbers."""


def add_rule(lower: Lowering, *names: str, operands: int | tuple[int, int] = (0, ANY),
             parameters: Sequence[int] = (), ignored: Sequence[str] = (), types: Types = COMPUTED,
             typed_by: TypedBy = 0, result: str = "", draws: bool = False) -> None:
    """Register `lower` for the MXNet operators `names`, one name each; a second rule for one is an error. `draws`: it
    draws random numbers, so it is for models as wholes (`find_whole_rule`)."""
    span = operands if isinstance(operands, tuple) else (operands, operands)
    lower = _of_operands(lower)
    record = Rule(names, lower, span, frozenset(parameters), tuple(ignored), types, typed_by, result)
    table = _DRAWING if draws else _RULES
    for name in dict.fromkeys(map(canonical, names)):
        if name in table:
            raise ValueError(f"MXNet operator {name} has two rules")
        table[name] = record
    registry.note_outside(lower)


def _of_operands(lower: Lowering) -> Lowering:
    """The rule; one with the arguments of 0.2, `(b, inputs, attrs, node)`, wrapped."""
    code = getattr(lower, "__code__", None)
    if code is None or code.co_varnames[1:4] != ("inputs", "attrs", "node"):
        return lower
    warnings.warn(f"the rule {lower.__name__} takes (b, inputs, attrs, node); write (b, attrs, *inputs), and "
                  "`attrs.node` for the node", DeprecationWarning, stacklevel=4)

    @functools.wraps(lower)
    def wrapped(b: Builder, attrs: Call, *inputs: Value) -> Value | Sequence[Value]:
        return lower(b, list(inputs), attrs, attrs.node)

    return wrapped


def rule(*names: str, operands: int | tuple[int, int] = (0, ANY), parameters: Sequence[int] = (),
         ignored: Sequence[str] = (), types: Types = COMPUTED,
         typed_by: TypedBy = 0, result: str = "", draws: bool = False) -> Callable[[_Lowering], _Lowering]:
    """Decorator form of `add_rule`."""

    def declare(lower: _Lowering) -> _Lowering:
        add_rule(lower, *names, operands=operands, parameters=parameters, ignored=ignored, types=types,
                 typed_by=typed_by, result=result, draws=draws)
        return lower

    return declare


def moves(*names: str, operands: int | tuple[int, int] = (0, ANY), parameters: Sequence[int] = (),
          ignored: Sequence[str] = (), typed_by: TypedBy = 0) -> Callable[[_Lowering], _Lowering]:
    """`rule` for an operator that moves elements of any type and computes nothing."""
    return rule(*names, operands=operands, parameters=parameters, ignored=ignored, types=MOVED, typed_by=typed_by)


def expressions(*rows: tuple[str, str, Lowering], **how: Any) -> None:
    """Register rules that are one expression each.

    Args:
        rows: the operator's names with a space between them, what it computes, and the expression.
        how: as for `add_rule`.
    """
    for names, doc, lower in rows:
        lower.__doc__ = doc
        add_rule(lower, *names.split(), **how)


def find_rule(op: str) -> Rule | None:
    """The rule for the MXNet operator `op`, if there is one."""
    return all_rules().get(canonical(op))


def find_whole_rule(op: str) -> Rule | None:
    """The rule for an operator of a model that MXNet does not run: of one that draws random numbers, too. Inside MXNet
    these stay there, for their sequence is that of its generator."""
    return find_rule(op) or _DRAWING.get(canonical(op))


def drawing_rules() -> dict[str, Rule]:
    """The rules that `find_whole_rule` has more than `find_rule`, by canonical names."""
    return _DRAWING


def all_rules() -> dict[str, Rule]:
    """Every rule, by the canonical name of its MXNet operator.

    Importing this module imports its package, and so all families.
    """
    return _RULES


def normal_axis(axis: int, rank: int) -> int:
    """`axis` in [0, rank)."""
    if not -rank <= axis < rank:
        raise UnsupportedError(f"axis {axis} is outside rank {rank}")
    return axis % rank


def axis_of(attrs: Attrs, x: Value, default: int = REQUIRED, name: str = "axis") -> int:
    """The attribute `axis` of an operator on x, from 0 on."""
    return normal_axis(attrs.int(name, default), x.rank)


def normal_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Sorted, distinct, in [0, rank)."""
    result = tuple(sorted({normal_axis(axis, rank) for axis in axes}))
    return result


def positive(value: int, name: str) -> int:
    """`value`, if it is at least 1: MXNet's own checks, made when it loads a model, may not have seen it.

    Raises:
        UnsupportedError: it is less.
    """
    if value < 1:
        raise UnsupportedError(f"{name}={value}, expected at least 1")
    return value


def image_shape(x: Value) -> tuple[int, ...]:
    """The shape (N, C, H, W) of images.

    Raises:
        UnsupportedError: the rank is not 4.
    """
    if x.rank != 4:
        raise UnsupportedError(f"found {x.type}, expected rank 4")
    return x.shape


def require_count(inputs: Sequence[Value], least: int, most: int | None = None) -> None:
    """Raises UnsupportedError: there are fewer inputs than `least`, or more than `most`, by default as many."""
    if not least <= len(inputs) <= (least if most is None else most):
        wanted = str(least) if most in (None, least) else f"{least} to {most}"
        raise UnsupportedError(f"found {len(inputs)} inputs, expected {wanted}")


def bias_of(bias: Value | None, no_bias: bool) -> Value | None:
    """The bias unless `no_bias`."""
    if not no_bias and bias is None:
        raise UnsupportedError("no_bias=False, but there is no bias input")
    return None if no_bias else bias


def per_axis(values: tuple[int, ...], count: int, fill: int, name: str) -> tuple[int, ...]:
    """`values`, or `count` times `fill` where MXNet leaves them empty."""
    if len(values) not in (0, count):
        raise UnsupportedError(f"{name}={values} has {len(values)} entries for {count} spatial axes")
    return values or (fill,) * count


def at_least_1d(b: Builder, value: Value) -> Value:
    """MXNet (outside mx.np) has no rank 0: a full reduction gives shape (1,)."""
    return value if value.shape else b.reshape(value, shape=(1,))


def as_indices(b: Builder, value: Value) -> Value:
    """Indices of any number type as i64; MXNet cuts fractions off."""
    return b.convert(value, element="i64")


def within_length(b: Builder, x: Value, lengths: Value, axis: int) -> Value:
    """bool, broadcastable to x: whether a position along `axis` is below its length.

    `lengths`: whole numbers in the shape of x without `axis`, of any number type, below 2**24.
    """
    shape = list(x.shape)
    if lengths.shape != (*shape[:axis], *shape[axis + 1:]):
        raise UnsupportedError(f"lengths {lengths.type} for axis {axis} of {x.type}")
    column = b.reshape(lengths, shape=(*shape[:axis], 1, *shape[axis + 1:]))
    return iota(b, shape[axis], axis, len(shape), "f32") < b.convert(column, element=element_type("f32"))


LEFT: dict[str, str] = {
    "Correlation": "a search over displacements, which only optical-flow nets use",
    "Custom": "it calls the user's own Python code",
}

_RANDOM = ("bernoulli|choice|exponential|gamma|gumbel|logistic|multinomial|normal|normal_n|pareto|rayleigh|uniform"
           "|uniform_n|weibull")

#: Why whole groups of operators stay, by a pattern of their names; the first pattern that matches counts.
KINDS: dict[str, str] = {
    rf"_random_(?!pdf_).*|_sample_.*|_shuffle|_npi_({_RANDOM})":
        "it draws random numbers, whose sequence must be that of MXNet's own generator",
    r"signsgd_update|(preloaded_)?multi_sgd_update": "it is for training",
    r"(?!sgd_update$).*_update": "it writes to its inputs, which are the optimizer's state",
    r"(mp_)?lamb_update_phase[12]|multi_lars|reset_arrays|_contrib_backward_.*|_npi_backward_.*|.*_backward|_contrib_hawkesll"
    r"|CTCLoss|_contrib_(MultiBoxTarget|bipartite_matching|box_encode)":
        "it is for training",
    r"_contrib_boolean_mask|_npi_(unique|bincount|delete|boolean_mask_.*)|_npx_nonzero|_contrib_getnnz":
        "the shape of its result depends on values",
    r"_contrib_calibrate_entropy": "it calibrates a model, before it runs",
    r"_contrib_quantize(_asym|d_rnn)": "int8 recurrent nets are not supported: their state has a zero point",
    r"_sg_mkldnn_selfatt_.*": "MXNet's MKLDNN backend made it of the interleaved attention operators",
    r"cast_storage|_sparse_retain|_square_sum|_contrib_(SparseEmbedding|edge_id|dgl_.*)":
        "it works on sparse arrays",
    r"_image_.*|_cv.*|_imdecode": "it prepares images, before the model",
    r"_linalg_(gelqf|potrf|potri|syevd|inverse|det|slogdet|trsm)|_npi_(cholesky|svd|eig.*|pinv.*|solve|tensorsolve|tensorinv)":
        "it factorizes matrices or solves systems, for which MXNet has LAPACK",
    r"_CachedOp.*|NGraphSubgraphOp": "it runs a graph of its own",
    r"_contrib_(fft|ifft|count_sketch)": "MXNet itself has it for GPUs only",
    r"_contrib_Deformable(Convolution|PSROIPooling)": "models have ModulatedDeformableConvolution in its place",
    r"_contrib_(Proposal|MultiProposal|PSROIPooling|RROIAlign)":
        "no model of GluonCV has it: these make and pool their regions with other operators",
    r"_contrib_allclose": "its result has rank 0, which MXNet's partitioner takes for an unknown shape",
    r"_histogram|_npi_(percentile|lcm|lcm_scalar)|col2im": "it analyses data, and is in no net that we know",
    r"_npi_insert_.*|fill_element_0index|_onehot_encode|_scatter_set_nd|_set_value"
    r"|_zeros_without_dtype|_copyto|_CrossDeviceCopy|_npi_(powerd|share_memory)|_npx_constraint_check":
        "it is for imperative code: a graph has hardly a use for it",
    r"_NoGradient|_NDArray|_Native|_CustomFunction": "MXNet makes it for Python's sake, and no model file has it",
}


def why_left(op: str) -> str | None:
    """Why the operator of this name stays with MXNet; None when no reason is on record."""
    name = canonical(op)
    return LEFT.get(name) or next((reason for names, reason in KINDS.items() if re.fullmatch(names, name)), None)


FindRule = Callable[[str], "Rule | None"]
_MOST_TENSOR_BYTES = 1 << 40
MOST_CONSTANT_BYTES = 1 << 28
"""The size of what a graph's operators make of their attributes and shapes alone."""


def lower_operators(b: Builder, symbol: SymbolGraph, values: dict[Edge, Value], halves: Halves,
                    rules: FindRule = find_rule, most: int | None = None,
                    before: Callable[[SymbolNode], None] = lambda node: None,
                    refused: Callable[[SymbolNode, str], None] | None = None) -> None:
    """Append the IR of all operators of a graph to what `values` has of its variables; their outputs are added to it.

    `before` is called ahead of each operator. `refused` is called with each operator that can't be lowered and the
    reason; of those that read what it gives, with those that have no rule.

    Raises:
        UnsupportedError: a node can't be lowered; the text names it and the reason. Or they come to more than `most`
            nodes, or to more than MOST_CONSTANT_BYTES of constants.
        ModelError: an attribute is malformed.
    """
    begin, size = len(b.graph.nodes), 0
    for node in symbol.operators():
        is_cut_off = refused is not None and any(
            edge not in values and not symbol.nodes[edge.node].is_variable for edge in node.inputs)
        if not is_cut_off:
            before(node)
        own = len(b.graph.nodes)
        try:
            if is_cut_off:
                _rule(node, rules)
                continue
            outputs = lower_node(b, node, [read(symbol, values, edge) for edge in node.inputs], halves, rules)
        except UnsupportedError as error:
            if refused is None:
                raise UnsupportedError(f"{node.origin}: {error}") from None
            refused(node, str(error))
            continue
        values.update((Edge(node.index, i), value) for i, value in enumerate(outputs))
        size += sum(one.output.type.bytes for one in b.graph.nodes[own:] if one.op.name == "constant")
        if size > MOST_CONSTANT_BYTES:
            raise UnsupportedError(f"{node.origin}: the constants up to here have {size} bytes, expected at most "
                                   f"{MOST_CONSTANT_BYTES}")
        if most is not None and len(b.graph.nodes) - begin > most:
            raise UnsupportedError(f"its operators come to more than {most} nodes")


def lower_node(b: Builder, node: SymbolNode, inputs: list[Value], halves: Halves | None = None,
               rules: FindRule = find_rule) -> list[Value]:
    """Append one operator's IR and return its outputs: without those of MXNet's that no rule computes.

    `halves` is shared by the nodes of a graph.

    Raises:
        UnsupportedError: the bare reason: naming the node is the caller's.
        ModelError: an attribute is malformed.
    """
    b.origin = node.origin
    try:
        with because(node.origin):
            return _apply(b, node, inputs, halves or Halves(), _rule(node, rules))
    except TypeRuleError as error:
        raise UnsupportedError(str(error)) from None
    except MemoryError as error:
        raise UnsupportedError(f"there is not enough memory for its constants: {error}") from error
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # a damaged file's doing
        raise UnsupportedError(f"its inputs or attributes do not fit: {error}") from error


def _apply(b: Builder, node: SymbolNode, inputs: list[Value], halves: Halves, rule: Rule) -> list[Value]:
    require_count(inputs, *rule.operands)
    _check_types("input", inputs, rule.types.elements, halves.scalars)
    attrs = Call(node)
    attrs.ignore(*rule.ignored)
    named = attrs.element(rule.result, None) if rule.result else None
    lowered = rule.lower(b, attrs, *_computing(b, rule, inputs, halves))
    if attrs.unread():
        unknown = ", ".join(f"{key}={value}" for key, value in attrs.unread().items())
        raise UnsupportedError(f"no support for {unknown}")
    outputs = [lowered] if isinstance(lowered, Value) else list(lowered)
    if named is None:
        outputs = [_stored(b, rule, inputs, value, halves) for value in outputs]
    else:
        outputs = [_as_named(b, value, named, halves) for value in outputs]
    _check_types("output", outputs, EXACT.elements, halves.scalars)
    return outputs


def _computing(b: Builder, rule: Rule, inputs: list[Value], halves: Halves) -> list[Value]:
    """The inputs in the types that the rule computes in."""
    if rule.types.moves and not any(halves.has_wide(value) for value in inputs):
        return inputs
    return [_in_f32(b, value, halves) if value.element.name in rule.types.in_f32 else value for value in inputs]


def _in_f32(b: Builder, value: Value, halves: Halves) -> Value:
    return halves.widened(b, value) if value.element is f16 else b.convert(value, element=f32)


def _stored(b: Builder, rule: Rule, inputs: list[Value], result: Value, halves: Halves) -> Value:
    """A result in the element type that MXNet gives it."""
    elements = [value.element for value in inputs]
    position = rule.typed_by if isinstance(rule.typed_by, int) else rule.typed_by(elements)
    if result.element is not f32 or position >= len(inputs):
        return result
    element = elements[position]
    if element.name not in rule.types.in_f32:
        return result
    return halves.narrowed(b, result) if element is f16 else b.convert(result, element=element)


def _as_named(b: Builder, result: Value, element: ElementType, halves: Halves) -> Value:
    """A result in the element type that an attribute names."""
    own = result.element
    if own is element:
        return result
    return halves.narrowed(b, result) if (own, element) == (f32, f16) else b.convert(result, element=element)


def _rule(node: SymbolNode, rules: FindRule) -> Rule:
    rule = rules(node.op)
    if rule is None:
        reason = why_left(node.op) or ("it runs subgraphs of its own" if node.bodies else None)
        raise UnsupportedError(f"{node.op} stays with MXNet: {reason}" if reason
                               else f"no rule for the MXNet operator {node.op}")
    return rule


def _check_types(what: str, values: Sequence[Value], elements: tuple[str, ...], scalars: bool) -> None:
    """Raises UnsupportedError: a type is none that rules know. `what`: input or output."""
    for position, type_ in enumerate([value.type for value in values]):
        size = type_.size
        if type_.element.name not in elements:
            reason = f"is {type_}; supported element types: {', '.join(elements)}"
        elif not type_.shape and not scalars:
            reason = "has rank 0, which MXNet takes for an unknown shape"
        elif not size:
            reason = f"is {type_}, which has no elements"
        elif not is_symbolic(size) and size * type_.element.size > _MOST_TENSOR_BYTES:
            reason = f"is {type_}, larger than {_MOST_TENSOR_BYTES} bytes"
        else:
            continue
        raise UnsupportedError(f"{what} {position} {reason}")


def read(symbol: SymbolGraph, values: Mapping[Edge, Value], edge: Edge) -> Value:
    """The value of `edge`.

    Raises:
        UnsupportedError: no rule computes it.
    """
    if edge not in values:
        raise UnsupportedError(unread_output(symbol.nodes[edge.node], edge.output))
    return values[edge]


def unread_output(node: SymbolNode, output: int) -> str:
    """The reason when someone reads an output that no rule computes, such as batch norm's mean."""
    return f"output {output} of {node.origin} is read, which is not computed at inference"
