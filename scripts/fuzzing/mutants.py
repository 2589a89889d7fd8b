"""Changes to ONNX models that leave them readable: fields, names, shapes, numbers, nesting."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import helper, numpy_helper

INTEGERS = (0, 1, -1, 2, 3, 7, 64, 255, 1000, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 33, 1 << 40, 1 << 62,
            (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-7, 3e38, float("inf"), -float("inf"), float("nan"))
MOST_BYTES = 1 << 16
"""The size of the largest mutant that is tried: larger ones only take longer."""
_MOST_CHANGES = 4
_DEPTH = 40
"""The levels of nested functions: doubled at each they are more nodes than any memory holds."""


def seeds() -> list[bytes]:
    """The models of `onnx.backend.test` that are small: every operator, most attributes, control flow, sequences."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [case.model for case in collect_testcases(None) if case.model is not None]
    return [model.SerializeToString() for model in found if model.ByteSize() <= MOST_BYTES // 4]


def mutate(content: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """One to four changes; what is no model becomes one of `others` first."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError:
        model.Clear()
    if not model.graph.node:
        model.ParseFromString(random.choice(others))
    for _ in range(random.randint(1, _MOST_CHANGES)):
        change = random.choice(_CHANGES)
        if change is _splice:
            _splice(model, onnx.load_model_from_string(random.choice(others)), random)
        else:
            change(model, random)
    changed = model.SerializeToString()
    return changed if len(changed) <= MOST_BYTES else content


def _messages(message: Message) -> Iterator[Message]:
    """All within `message`, itself first."""
    waiting = [message]
    while waiting:
        top = waiting.pop()
        yield top
        for field, value in top.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                waiting.extend([value] if isinstance(value, Message) else value)


def _found(model: Message, kind: type[Message]) -> list[Any]:
    return [message for message in _messages(model) if isinstance(message, kind)]


def _field(model: onnx.ModelProto, random: Random) -> None:
    """Any field of any message: cleared, or given an element more, one less, another value."""
    message = random.choice(list(_messages(model)))
    field = random.choice(message.DESCRIPTOR.fields)
    held = getattr(message, field.name)
    if not hasattr(held, "append") and field.type != FieldDescriptor.TYPE_MESSAGE:
        setattr(message, field.name, _value(field, random))
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        same = [other for other in _messages(model) if other.DESCRIPTOR is field.message_type]
        if hasattr(held, "append"):
            if held and random.random() < 0.5:
                del held[random.randrange(len(held))]
            else:
                held.add().CopyFrom(_copy(random.choice(same)) if same else field.message_type._concrete_class())
        elif same and random.random() < 0.5:
            held.CopyFrom(_copy(random.choice(same)))
        else:
            message.ClearField(field.name)
    elif held and random.random() < 0.6:
        place = random.randrange(len(held))
        if random.random() < 0.5:
            del held[place]
        else:
            held[place] = _value(field, random)
    else:
        held.append(_value(field, random))


def _copy(message: Message) -> Message:
    """A message must not be copied into itself."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _value(field: FieldDescriptor, random: Random) -> Any:
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return random.choice(FLOATS)
    if field.type == FieldDescriptor.TYPE_STRING:
        return random.choice(("", "x", "y", "relu", "SAME_UPPER", "ai.onnx", "ai.onnx.ml", "a" * 300))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.choice((b"", b"\0" * 8, b"\xff" * 8, b"SAME_LOWER", b"reflect", b"\0" * 400))
    if field.type == FieldDescriptor.TYPE_ENUM:
        return random.choice(field.enum_type.values).number
    if field.type in (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32):
        return random.choice([number for number in INTEGERS if -(1 << 31) <= number < 1 << 31] + list(range(24)))
    if field.type == FieldDescriptor.TYPE_UINT64:
        return random.choice([number for number in INTEGERS if number >= 0])
    return random.choice(INTEGERS)


def _rewire(model: onnx.ModelProto, random: Random) -> None:
    """A node reads or gives another name, or is another operator."""
    nodes = _found(model, onnx.NodeProto)
    if not nodes:
        return
    node = random.choice(nodes)
    names = [name for one in nodes for name in (*one.input, *one.output)] + [""]
    place = random.choice(("input", "output", "operator", "order"))
    if place == "operator":
        other = random.choice(nodes)
        node.op_type, node.domain = other.op_type, other.domain
    elif place == "order":
        node.CopyFrom(_copy(random.choice(nodes)))
    else:
        held = getattr(node, place)
        if held and random.random() < 0.8:
            held[random.randrange(len(held))] = random.choice(names)
        else:
            held.append(random.choice(names))


def _shape(model: onnx.ModelProto, random: Random) -> None:
    """A shape of an input or output: empty, unknown, negative, huge, of another rank."""
    tensors = _found(model, onnx.TypeProto.Tensor)
    if not tensors:
        return
    tensor = random.choice(tensors)
    kind = random.choice(("none", "empty", "size", "unknown", "symbol", "longer", "type"))
    dims = tensor.shape.dim
    if kind == "none":
        tensor.ClearField("shape")
    elif kind == "empty":
        del dims[:]
    elif kind == "longer" or not dims:
        dims.add().dim_value = random.choice(INTEGERS)
    elif kind == "type":
        tensor.elem_type = random.randrange(26)
    elif kind == "size":
        random.choice(dims).dim_value = random.choice(INTEGERS)
    elif kind == "symbol":
        random.choice(dims).dim_param = random.choice(("n", "m", "?"))
    else:
        random.choice(dims).Clear()


def _number(model: onnx.ModelProto, random: Random) -> None:
    """An element of a small tensor, which may be an axis, a count or a target shape."""
    tensors = [tensor for tensor in _found(model, onnx.TensorProto)
               if 0 < len(tensor.dims) <= 2 and tensor.data_location != onnx.TensorProto.EXTERNAL]
    if not tensors:
        return
    tensor = random.choice(tensors)
    try:
        array = np.array(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError):  # an earlier change's doing
        return
    if 0 < array.size <= 4096 and array.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            numbers = np.array(FLOATS) if array.dtype.kind == "f" else np.array(INTEGERS)
            array.reshape(-1)[random.randrange(array.size)] = random.choice(numbers).astype(array.dtype)
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(array, name))


def _splice(model: onnx.ModelProto, other: onnx.ModelProto, random: Random) -> None:
    """A node of another model, fed with values of this one."""
    node = _copy(random.choice(other.graph.node))
    graph = random.choice(_found(model, onnx.GraphProto) or [model.graph])
    names = [value.name for value in graph.input] + [name for one in graph.node for name in one.output]
    assert isinstance(node, onnx.NodeProto)
    for place in range(len(node.input)):
        node.input[place] = random.choice(names) if names else ""
    for place in range(len(node.output)):
        node.output[place] = f"{node.output[place]}_{random.randrange(1 << 30)}"
    graph.node.append(node)
    if node.output and random.random() < 0.7:
        (graph.output[0] if graph.output else graph.output.add()).name = node.output[0]


def _functions(model: onnx.ModelProto, random: Random) -> None:
    """Functions of which each calls the next twice, the last one itself or a node."""
    depth, domain = random.randint(1, _DEPTH), "fuzz"
    own = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
    last = random.choice((helper.make_node("Relu", ["a"], ["b"]), helper.make_node("f0", ["a"], ["b"], domain=domain)))
    for level in range(depth):
        body = [helper.make_node(f"f{level + 1}", [a], [b], domain=domain) for a, b in (("a", "m"), ("m", "b"))]
        model.functions.append(helper.make_function(domain, f"f{level}", ["a"], ["b"], body, own))
    model.functions.append(helper.make_function(domain, f"f{depth}", ["a"], ["b"], [last], own))
    _called(model, helper.make_node("f0", [_some_name(model, random)], ["called"], domain=domain))
    model.opset_import.append(own[1])


def _loops(model: onnx.ModelProto, random: Random) -> None:
    """Loops within loops, the state of which may grow with each trip."""
    trips = numpy_helper.from_array(np.array(random.choice((2, 10, 100, 1000))), "trips")
    levels = random.randint(1, 4)
    grow = random.choice((helper.make_node("Relu", ["s0"], ["t0"]), helper.make_node("Add", ["s0", "s0"], ["t0"]),
                          helper.make_node("Concat", ["s0", "s0"], ["t0"], axis=0)))
    for level in range(levels):
        nodes = [helper.make_node("Identity", [f"go{level}"], [f"on{level}"]), grow]
        ports = ([onnx.ValueInfoProto(name=f"{name}{level}") for name in names]
                 for names in (("i", "go", "s"), ("on", "t")))
        body = helper.make_graph(nodes, f"body{level}", *ports)
        grow = helper.make_node("Loop", ["trips", "", f"s{level + 1}"], [f"t{level + 1}"], body=body)
    grow.input[2], grow.output[0] = _some_name(model, random), "called"
    model.graph.initializer.append(trips)
    _called(model, grow)


def _some_name(model: onnx.ModelProto, random: Random) -> str:
    names = [value.name for value in model.graph.input] + [name for node in model.graph.node for name in node.output]
    return random.choice(names or [""])


def _called(model: onnx.ModelProto, node: onnx.NodeProto) -> None:
    model.graph.node.append(node)
    (model.graph.output[0] if model.graph.output else model.graph.output.add()).name = node.output[0]


def _opset(model: onnx.ModelProto, random: Random) -> None:
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = random.randint(1, onnx.defs.onnx_opset_version())


_CHANGES: tuple[Callable[..., None], ...] = (
    *[_field] * 24, *[_rewire] * 16, *[_shape] * 16, *[_number] * 24, *[_splice] * 12, *[_opset] * 4, _functions,
    _loops,
)
"""As often as they lead somewhere; the last two take seconds until they come to their bound."""
