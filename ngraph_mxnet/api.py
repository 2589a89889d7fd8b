"""The way in for models of every kind: `ngraph_mxnet.compile`, `export`, `explain` and its kin."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngraph_mxnet.base.errors import ConfigError, only_params, require_forms
from ngraph_mxnet.base.forks import collector_paused
from ngraph_mxnet.frontends.model import Model, Shapes, Sizes, model_of
from ngraph_mxnet.ir.graph import Graph
from ngraph_mxnet.ir.ranges import checked_shape, fixed_shapes
from ngraph_mxnet.program.backend import canonical_name, get_backend
from ngraph_mxnet.program.executable import Executable

if TYPE_CHECKING:
    from ngraph_mxnet.frontends.onnx.executable import ModelExecutable
    from ngraph_mxnet.frontends.onnx.explain import OnnxExplanation
    from ngraph_mxnet.frontends.onnx.writer.file import OnnxFile
    from ngraph_mxnet.frontends.verdicts import Explanation
    from ngraph_mxnet.plugin.explain import TrainingExplanation
    from ngraph_mxnet.program.artefact import Summary
    from ngraph_mxnet.program.ranges import RangeExplanation


@collector_paused
def compile(model: Any, backend: str | None = None, *, params: Any = None, shapes: Sizes | None = None,
            dtypes: Mapping[str, str] | None = None, results: Sequence[str] = (), weights: Any = None,
            **options: Any) -> Executable | ModelExecutable:
    """Compile a model into something to call with arrays.

    Args:
        model: a `Graph`, its text, or the path of a file with it; an ONNX model, as its path, its bytes or an
            `onnx.ModelProto`; an MXNet symbol, as the object or the path of its `-symbol.json`; a Gluon HybridBlock; or
            what was compiled before: the path of a compiled file (docs/artefact.md), or a `Package` or its file. MXNet
            is imported for blocks alone.
        backend: a name from `backends()`; by default the value of NGRAPH_BACKEND.
        params: arrays by parameter name, which become constants, or a `.params` file. A symbol needs those of all its
            parameters, by the names of `mx.nd.load` with or without `arg:` and `aux:`; of a graph those that have none
            are inputs. Other models hold their own. `weights` is another name of it.
        shapes: of inputs, by name: of a symbol's data; of a block's inputs, in its order, which get these names; of an
            ONNX model's inputs to fix what it leaves open. Without it an ONNX model is compiled for the shapes that it
            is called with. A size is a number, or a range as `"1..32"`, `"H"` or `"H:8..640"` (docs/shapes.md): the
            model is then compiled for all sizes within, when it is first called with sizes that nothing compiled before
            is for.
        dtypes: of inputs of a symbol or block, by name; float32 where not given.
        results: the names of outputs, or of values within the model, in place of all outputs; what only the others need
            is left out. As MXNet and ONNX call them: `fc1_output` is that of the operator `fc1`.
        options: the backend's own, as `precision="bf16"` of the CPU's.

    Raises:
        GraphError, ModelError: the graph or the model is malformed, a shape does not fit, or it is nothing that can be
            compiled.
        InputError: a weight names no parameter, or has another shape or dtype.
        ConfigError: no such backend or option, an option's value or a size is not allowed, or an argument is not for
            models of this kind; at once, not at the first call.
        UnsupportedError: a node can't be lowered, or the backend does not run it; the text names it and the reason.
        PackageError: what was compiled before is damaged, or not for this machine.
        CalibrationError: the option `recipe` is none, or fits none of the model's layers.
    """
    require_forms(shapes=shapes, dtypes=dtypes, results=results)
    asked = model_of(model, only_params(params, weights), dtypes, results)
    asked.check(shapes=shapes)
    found: Executable | ModelExecutable = asked.executable(shapes or {}, backend, options)
    if isinstance(found, Executable) and found.fit is not None and not options.keys().isdisjoint(_OF_A_RECIPE):
        found.fit.require()  # also of a model that has no layers, as a part of one may
    return found


_OF_A_RECIPE = ("precision", "recipe")
DTypes = Mapping[str, Any]


def explain(model: Any, shapes: Shapes | None = None, dtypes: DTypes | None = None, *, backend: str | None = None,
            kernels: bool = False, results: Sequence[str] = (),
            options: Mapping[str, Any] | None = None) -> Explanation | OnnxExplanation:
    """Which parts of a model run on a backend, and why the others do not. Nothing runs.

    Args:
        model: a symbol, a Gluon HybridBlock or an ONNX model, as `compile` takes them.
        shapes: of a symbol's data, by name; of a block's inputs, in its order, which get these names; of inputs that an
            ONNX model leaves open.
        dtypes: of inputs of a symbol or block, by name; float32 where not given.
        backend: by default the one of NGRAPH_BACKEND.
        kernels: compile what runs on the backend, too, and tell what it makes of it: of the CPU's, how each contraction
            is computed, and the memory.
        results: as for `compile`.
        options: the backend's own, which its plan depends on.

    Raises:
        ModelError: the model is damaged, an input's name or dtype is wrong, a shape is missing or does not fit.
        ConfigError: no such backend or option, `kernels` of a backend that has none, or a model of another kind.
    """
    require_forms(shapes=shapes, dtypes=dtypes, results=results)
    asked, planner = model_of(model, dtypes=dtypes, results=results), get_backend(backend)
    planner.plan(Graph(), options or {})  # refuses options before any node is judged
    if kernels:
        planner.explain([])  # refuses, likewise, if there is nothing to tell
    found: Explanation | OnnxExplanation = asked.verdicts(fixed_shapes(shapes), backend, kernels=kernels,
                                                          options=options or {})
    return found


def explain_shapes(model: Any, shapes: Shapes, axes: Mapping[str, Sequence[int]], dtypes: DTypes | None = None, *,
                   backend: str | None = None) -> RangeExplanation:
    """Explain what would be compiled once for all sizes of these axes, and what that assumes of the sizes.

    Args:
        model, shapes, dtypes, backend: as for `explain`.
        axes: those whose sizes change, by the input's name.

    Raises:
        ModelError, ConfigError: as `explain`; also for an axis that there is not, or sizes that do not fit.
        UnsupportedError: an input of an ONNX model is no tensor.
    """
    require_forms(shapes=shapes, axes=axes, dtypes=dtypes)
    return model_of(model, dtypes=dtypes).range_verdicts(fixed_shapes(shapes), axes, backend)


def explain_training(model: Any, shapes: Shapes, dtypes: DTypes | None = None) -> TrainingExplanation:
    """Explain where each node and each parameter's update would run in training, on the CPU or in MXNet, and why.

    Args:
        model: a symbol or a Gluon block, as for `explain`; all its arguments are trained but those in `shapes` and
            labels.

    Raises:
        ModelError, ConfigError: as `explain`; an ONNX model is not trained.
    """
    require_forms(shapes=shapes, dtypes=dtypes)
    found: TrainingExplanation = model_of(model, dtypes=dtypes).training_verdicts(fixed_shapes(shapes))
    return found


def export(model: Any, path: str | Path, *, params: Any = None,
           shapes: Mapping[str, Any] | None = None, dtypes: Mapping[str, str] | None = None,
           isas: Sequence[str] = (), threads: int | None = None, precision: str | None = None, recipe: Any = None,
           metadata: Mapping[str, str] | None = None, with_references: bool = False, results: Sequence[str] = (),
           weights: Any = None, **inputs: Any) -> None:
    """Compile a model as a whole, for every x86-64 CPU, and write the file that the runtime runs.

    Args:
        model: what `compile` takes, but what is compiled already.
        params: of a symbol or a graph, by name, or a `.params` file. Parameters of a graph that have none are inputs.
            `weights` is another name of it.
        inputs: the shape of each input by its name, as `data=(1, 3, 224, 224)`; a list of shapes compiles for each of
            them. A Gluon block's inputs are given in its order, and get these names. Sizes may be ranges, as
            `data=("1..32", 3, "H", "W")` (docs/shapes.md): what is compiled is then for all sizes within, and shapes
            beside it, in a list, are preferred where they fit.
        shapes: the same as a dict, for names that are no keywords.
        dtypes: of inputs of a symbol or block; float32 where not given.
        isas: instruction sets, of amx, avx512, avx_vnni, avx2 and baseline; by default all but amx and avx_vnni, of
            int8 without baseline.
        threads: as many as calls may ask for, which work is divided for; by default those of OMP_NUM_THREADS.
        precision: f32, bf16, auto (bf16 where the CPU multiplies it fast), or int8 for what the recipe names; by
            default that of NGRAPH_PRECISION.
        recipe: of quantisation, for int8: an object or a file; by default that of NGRAPH_CALIBRATION.
        metadata: texts that the file carries.
        with_references: with random inputs and what this machine computes of them, to verify other machines with.
        results: as for `compile`.

    Raises:
        ModelError, GraphError, InputError: the model is malformed, or a shape or weight is missing or does not fit.
        UnsupportedError: it can't be compiled as a whole; the text lists the nodes and the reasons.
        ConfigError: an argument's value is not allowed.
        PackageError, OSError: the file can't be written.
    """
    require_forms(shapes=shapes, dtypes=dtypes, isas=isas, threads=threads, metadata=metadata, results=results)
    sets = shape_sets({**(shapes or {}), **inputs})
    told = {"threads": threads, "precision": precision, "recipe": recipe}
    options = {name: value for name, value in told.items() if value is not None}
    export_sets(model_of(model, only_params(params, weights), dtypes, results), path, sets, isas=isas, options=options,
                metadata=metadata, with_references=with_references)


def to_onnx(model: Any, path: str | Path, *, params: Any = None, shapes: Sizes | None = None,
            dtypes: Mapping[str, str] | None = None, opset: int = 17, optimise: bool = False,
            recipe: Any = None, external_data: bool = False, compare: bool = True,
            metadata: Mapping[str, str] | None = None, results: Sequence[str] = (), weights: Any = None,
            **inputs: Any) -> OnnxFile:
    """Write a model as ONNX. The file is there only once ONNX's checker took it, and its outputs for random inputs were
    those of the model by the definitions (`INTERPRETER`): read back by this package, and by ONNX Runtime where that is
    installed.

    Args:
        model: what `compile` takes, but what is compiled already; an ONNX model is written anew.
        params: of a symbol or a graph, by name, or a `.params` file. `weights` is another name of it.
        inputs: the shape of each input by its name, as `data=("N", 3, 224, 224)`. Sizes may be ranges (docs/shapes.md):
            they stay symbols in the file.
        shapes: the same as a dict, for names that are no keywords.
        dtypes: of inputs of a symbol or block; float32 where not given.
        opset: of ONNX's operators, from 17 to 23.
        optimise: fold batch normalizations and arithmetic by channel into weights.
        recipe: of `quantize`, or a file of it: its layers are written in 8 bits, with all others folded and fused.
        external_data: put weights into a file of their own, `PATH.data`. Those of 2 GB and more always are.
        compare: False writes the file without comparisons, which take minutes of large models, and refuse one in which
            the order of boxes hangs on a rounding.
        metadata: texts that the file carries.
        results: as for `compile`.

    Returns:
        What was written: operators, sizes, and the comparisons.

    Raises:
        ModelError, GraphError, InputError: the model is malformed, a shape or weight is missing or does not fit; or an
            output differs, which no model's should.
        CalibrationError: the recipe is none, or of another model.
        UnsupportedError: ONNX has no operators for a node; the text names all such nodes and the reasons.
        ConfigError: an argument's value is not allowed.
        OSError: the file can't be written.
    """
    require_forms(shapes=shapes, dtypes=dtypes, metadata=metadata, results=results)
    from ngraph_mxnet.frontends.onnx.writer.file import write_file

    (sizes,) = shape_sets({**(shapes or {}), **inputs}) or ({},)
    return write_file(model_of(model, only_params(params, weights), dtypes, results), path, sizes, opset=opset,
                      optimise=optimise, recipe=recipe, external_data=external_data, compare=compare, metadata=metadata)


def shape_sets(shapes: Mapping[str, Any]) -> list[dict[str, tuple[int | str, ...]]]:
    """A shape for each input, for each set: a list has one for each set, a single shape is for all. Raises ConfigError:
    the lists differ in length, or what should be a shape is none."""
    lists = {}
    for name, value in shapes.items():
        try:
            several = len(value) > 0 and all(hasattr(one, "__len__") and not isinstance(one, str) for one in value)
            lists[name] = [checked_shape(name, one) for one in (value if several else [value])]
        except (TypeError, ValueError):
            raise ConfigError(f"{name}={value!r}: expected a shape, as (1, 3, 224, 224), or a list of shapes") from None
    counts = {len(found) for found in lists.values()} - {1}
    if len(counts) > 1:
        numbers = ", ".join(f"{name} {len(found)}" for name, found in lists.items())
        raise ConfigError(f"the lists of shapes differ in length: {numbers}")
    return [{name: found[number if len(found) > 1 else 0] for name, found in lists.items()}
            for number in range(max(counts, default=1))]


def export_sets(model: Model, path: str | Path, sets: Sequence[Sizes], *, isas: Sequence[str] = (),
                options: Mapping[str, Any] | None = None, metadata: Mapping[str, str] | None = None,
                with_references: bool = False, on_program: Callable[[], None] = lambda: None) -> Summary:
    """Export the model as `export` does, for these sets of shapes. See `export` and `compile_to_file` for the
    arguments."""
    for number, one in enumerate(sets):
        if one in sets[:number]:  # texts and numbers, as they are written
            raise ConfigError(f"two sets of shapes are the same: {one}")
    model.require_source()
    model.check(shapes=sets[0])
    model.require_sizes(sets[0])
    model.require_weights(sets[0])
    backend = canonical_name()
    graphs = [model.graph(one, backend) for one in sets]
    from ngraph_mxnet.program.export import compile_to_file

    return compile_to_file(path, graphs, backend, isas=isas, options=options, metadata=metadata,
                           with_references=with_references, prepares=model.prepares, on_program=on_program)
