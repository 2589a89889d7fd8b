"""MXNet's models as its objects: a symbol with its weights, and a Gluon block, which is made one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ngraph_mxnet.base.errors import ConfigError, ModelError, NGraphError, listed
from ngraph_mxnet.frontends.model import Model, Shapes, Sizes
from ngraph_mxnet.frontends.mxnet.importer import with_results
from ngraph_mxnet.frontends.mxnet.model import SymbolModel, random_weights
from ngraph_mxnet.frontends.mxnet.symbol_json import SymbolGraph, graph_of, parse_symbol, read_symbol
from ngraph_mxnet.ir.ranges import some_shapes
from ngraph_mxnet.plugin.arrays import brief
from ngraph_mxnet.plugin.inference import check_inputs, inferred_shapes
from ngraph_mxnet.program.backend import get_backend
from ngraph_mxnet.program.compile import Ranged, Weighted
from ngraph_mxnet.program.feeds import SEED, Draw, draws_of, named_arrays, named_shapes, random_array

if TYPE_CHECKING:
    from mxnet.executor import Executor
    from mxnet.ndarray import NDArray
    from mxnet.symbol import Symbol

    from ngraph_mxnet.frontends.verdicts import Explanation
    from ngraph_mxnet.plugin.explain import TrainingExplanation
    from ngraph_mxnet.program.ranges import RangeExplanation


class LiveSymbolModel(SymbolModel):
    """A symbol as MXNet's object. MXNet tells its shapes and dtypes, also behind operators that have no rule, and runs
    those operators."""

    def symbol(self, sizes: Sizes) -> Symbol:
        """Return MXNet's object. `sizes`: shapes of the inputs, which a symbol does not need. Raises ModelError: a file
        can't be read, or is corrupt."""
        return self._symbol

    @cached_property
    def _symbol(self) -> Symbol:
        import mxnet as mx

        if hasattr(self.source, "tojson"):
            return chosen(self.source, self.results)
        text = os.fspath(self.path) if self.path else str(self.source)
        read_symbol(text)  # MXNet's own parser crashes on some corrupt files
        try:
            return chosen(mx.sym.load(text) if self.path else mx.sym.load_json(text), self.results)
        except mx.base.MXNetError as error:
            raise ModelError(f"MXNet can't load {self.path or 'the symbol'}: {brief(error)}") from None

    @cached_property
    def graph_of_symbol(self) -> SymbolGraph:
        return parse_symbol(self._symbol.tojson(remove_amp_cast=False))

    def in_mxnet(self, why: NGraphError) -> LiveSymbolModel:
        return self

    def with_random_weights(self, sizes: Shapes) -> LiveSymbolModel:
        """Labels are drawn, too, and whatever a file of weights lacks of them."""
        self.require_sizes(sizes)
        symbol = self._symbol
        check_inputs(symbol, sizes, self.dtypes)
        wanted = {name: shape for name, shape in inferred_shapes(symbol, sizes).items() if name not in sizes}
        weights = {**random_weights(wanted), **self._fitting(wanted)}
        return LiveSymbolModel(symbol, weights, self.dtypes, self.path)

    def told_dtypes(self) -> dict[str, Any]:
        """The dtypes that are given, and those of weights that are not float32."""
        names, held = set(self._symbol.list_inputs()), self.weights({})
        return {**{name: str(np.dtype(array.dtype)) for name, array in held.items()
                   if name in names and array.dtype != np.float32}, **self.dtypes}

    def _fitting(self, wanted: Shapes) -> dict[str, Any]:
        """The weights of these names and shapes. A label may be missing, and so may all if none were given. Raises
        ModelError: one is missing, or has another shape."""
        self._require_all(wanted)
        found, file = self.weights({}), self.given_weights
        held = {name: found[name] for name in wanted if name in found}
        for name, array in held.items():
            if isinstance(file, (str, os.PathLike)) and array.shape != tuple(wanted[name]):
                raise ModelError(f"{file}: {name} is {array.shape}, the model expects {tuple(wanted[name])}")
        return held

    def draws(self, sizes: Shapes, backend: str | None = None) -> dict[str, Draw]:
        """For a symbol that MXNet runs in part, return what the regions say that the backend would run."""
        from ngraph_mxnet.plugin.explain import all_dtypes, region_graphs

        symbol = self.symbol(sizes)
        check_inputs(symbol, sizes, self.dtypes)
        try:
            return draws_of(self._imported(sizes, {}))
        except NGraphError:
            told = all_dtypes(symbol, self.dtypes)
        found: dict[str, Draw] = {}
        for graph, _ in region_graphs(symbol, {name: (tuple(sizes[name]), told.get(name)) for name in sizes},
                                      get_backend(backend))[1]:
            found |= {name: draw for name, draw in draws_of(graph).items() if name in sizes}
        return found

    def profile(self, sizes: Shapes, arrays: Mapping[str, np.ndarray], rounds: int, backend: str | None,
                options: Mapping[str, Any]) -> Any:
        """In MXNet, with regions of the backend's, with random inputs beside these arrays, and random weights if none
        are given. Raises ConfigError: there are options."""
        if options:
            raise ConfigError("options (--option) are for models that are compiled as a whole; a symbol runs in MXNet")
        os.environ["MXNET_SUBGRAPH_BACKEND"] = "NGRAPH"
        if backend is not None:
            os.environ["NGRAPH_BACKEND"] = backend
        chosen = get_backend()  # MXNet would run the model alone if there were none
        given = named_arrays({name: name for name in self.inputs()}, arrays, sizes)
        sizes = {**named_shapes(given), **sizes}
        executor = self._bound(sizes, given)

        def forward() -> None:
            for output in executor.forward(is_train=False):
                output.wait_to_read()

        details = self.verdicts(sizes, None, kernels=True, options={}).details  # the bind may have compiled nothing
        return chosen.profile(forward, rounds, details)

    def _bound(self, sizes: Shapes, given: Mapping[str, np.ndarray]) -> Executor:
        """MXNet's executor, which holds the weights, the given inputs and random ones. Raises ModelError: MXNet refuses
        the model."""
        import mxnet as mx

        weights, symbol = self.with_random_weights(sizes).weights(sizes), self.symbol(sizes)
        try:
            executor = symbol.simple_bind(ctx=mx.cpu(), grad_req="null", type_dict=self.told_dtypes() or None,
                                         **{name: tuple(shape) for name, shape in sizes.items()})
        except (mx.base.MXNetError, RuntimeError, ValueError) as error:
            raise ModelError(f"MXNet can't bind {self.path or 'the symbol'} with {dict(sizes)}: "
                             f"{brief(error)}") from None
        arrays = {**executor.arg_dict, **executor.aux_dict}
        random = np.random.default_rng(SEED)
        draws = self.draws(sizes)
        drawn = {name: random_array(random, arrays[name].shape, arrays[name].dtype, draws.get(name)) for name in sizes}
        for name, values in {**weights, **drawn, **given}.items():
            arrays[name][:] = values
        return executor

    def verdicts(self, sizes: Shapes, backend: str | None, *, kernels: bool,
                 options: Mapping[str, Any]) -> Explanation:
        from ngraph_mxnet.plugin.explain import explain

        return explain(self.symbol(sizes), sizes, self.told_dtypes(), backend, kernels=kernels, options=options)

    def range_verdicts(self, sizes: Shapes, axes: Mapping[str, Sequence[int]],
                       backend: str | None) -> RangeExplanation:
        from ngraph_mxnet.plugin.explain import explain_shapes

        return explain_shapes(self.symbol(sizes), sizes, axes, self.told_dtypes(), backend)

    def training_verdicts(self, sizes: Shapes) -> TrainingExplanation:
        from ngraph_mxnet.plugin.explain import explain_training

        return explain_training(self.symbol(sizes), sizes, self.told_dtypes())


class BlockModel(LiveSymbolModel):
    """A Gluon block, which holds its weights. It is called with symbols when its first shapes are known: these name its
    inputs in order, and the shapes of its parameters may be open until then."""

    kind = "Gluon block"
    takes = ("shapes", "dtypes", "results")
    needs_sizes = "inputs, in its order"
    has_weights = True
    executable, with_random_weights = Model.executable, Model.with_random_weights  # type: ignore[assignment]
    _traced: tuple[Symbol, dict[str, NDArray]] | None = None

    def symbol(self, sizes: Sizes) -> Symbol:
        """Raises ConfigError: the block is not hybrid. Raises ModelError: there are no shapes, the block can't be made
        a symbol, or its parameters have no values."""
        if self._traced is None:
            self.require_sizes(sizes)
            symbol, weights = _trace(self.source, some_shapes([sizes]), self.dtypes)
            self._traced = chosen(symbol, self.results), weights
        return self._traced[0]

    @property
    def _symbol(self) -> Symbol:
        return self.symbol({})

    def graph(self, sizes: Sizes, backend: str | None = None, *, keep_loops: bool = False) -> Weighted | Ranged:
        self.symbol(sizes)
        return super().graph(sizes, backend, keep_loops=keep_loops)

    def inputs(self) -> Mapping[str, Sequence[Any]]:
        return {}

    def weights(self, sizes: Sizes) -> Mapping[str, Any]:
        self.symbol(sizes)
        assert self._traced is not None
        return self._traced[1]


def chosen(symbol: Symbol, results: Sequence[str]) -> Symbol:
    """The symbol cut behind these of its operators' outputs, or itself. Raises ModelError: there is no such output."""
    if not results:
        return symbol
    import mxnet as mx

    root = json.loads(symbol.tojson(remove_amp_cast=False))
    cut = with_results(graph_of(root), results).to_json()
    return mx.sym.load_json(json.dumps(cut | {"attrs": root["attrs"]}))


def _trace(block: Any, shapes: Shapes, dtypes: Mapping[str, Any]) -> tuple[Symbol, dict[str, NDArray]]:
    """The symbol that the block makes, and its parameters' values, by name."""
    import mxnet as mx

    if type(block).__mro__[-2].__name__ == "Block" and not isinstance(block, mx.gluon.HybridBlock):
        raise ConfigError(f"{type(block).__name__} is a Block whose Python runs at every call: export a HybridBlock")
    numpy_like = mx.util.is_np_array()
    try:
        inputs = [mx.sym.var(name) for name in shapes]
        found = block(*(each.as_np_ndarray() for each in inputs) if numpy_like else inputs)
        if any(parameter._deferred_init for parameter in block.collect_params().values()):
            zeros = (mx.np if numpy_like else mx.nd).zeros
            block(*(zeros(shape, dtype=dtypes.get(name, "float32")) for name, shape in shapes.items()))
        weights = {name: parameter.list_data()[0] for name, parameter in block.collect_params().items()}
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"{type(block).__name__} called with {listed(shapes)} makes no symbol with weights: "
                         f"{error}") from error
    flat = _flat(found)
    return flat[0] if len(flat) == 1 else mx.sym.Group(flat), weights


def _flat(found: Any) -> list[Symbol]:
    """The symbols of a block's outputs, which may be nested lists."""
    return [one for each in found for one in _flat(each)] if isinstance(found, (list, tuple)) else [found]
