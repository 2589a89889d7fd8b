"""What several commands share: options, the console, and files that are written whole, or not at all."""

from __future__ import annotations

import json
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import reduce, wraps
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from ngraph_mxnet.base import variables
from ngraph_mxnet.base.errors import ConfigError
from ngraph_mxnet.base.files import write_file
from ngraph_mxnet.base.rendered import jsonable
from ngraph_mxnet.frontends import IR_FILE, SYMBOL_FILE
from ngraph_mxnet.ir.ranges import checked_shape

Shapes = Mapping[str, tuple[int, ...]]
FILE, NEW_FILE = click.Path(exists=True, dir_okay=False), click.Path(dir_okay=False, path_type=Path)
_PIPE = 10_000
"""The width where there is no terminal: each row is one line, so that it can be searched."""


def placing_backends() -> str:
    """The names of all backends that place nodes on others, for messages."""
    from ngraph_mxnet.program.backend import backends_that

    return backends_that(lambda backend: backend.devices)


def _sizes(value: str) -> tuple[str, list[str]]:
    """The name and the sizes in a text such as `data=1,3,224,224`. Raises BadParameter."""
    name, separator, sizes = value.partition("=")
    shape = [size for size in sizes.strip("()").split(",") if size.strip()]
    if not separator or not shape:
        raise click.BadParameter(f"found {value!r}, expected NAME=D,D,...: for example data=1,3,224,224")
    return name, shape


def _shape(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    try:
        return {name: tuple(map(int, sizes)) for name, sizes in map(_sizes, values)}
    except ValueError as error:
        raise click.BadParameter(f"found {values}, expected NAME=D,D,... with numbers: {error}") from None


def read_range(value: str) -> tuple[str, tuple[int | str, ...]]:
    """A name and a shape whose sizes may be ranges, of a text such as `data=1..32,3,H,W`. Raises BadParameter."""
    name, shape = _sizes(value)
    try:
        return name, checked_shape(name, shape)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def pairs(form: str, example: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, str]]:
    """Reads values of this form, as NAME=VALUE."""
    def read(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        for value in values:
            if "=" not in value:
                raise click.BadParameter(f"found {value!r}, expected {form}: for example {example}")
        return dict(value.partition("=")[::2] for value in values)

    return read


def _arrays(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Arrays by name; one without a name is called `#` and its place among the inputs."""
    arrays: dict[str, np.ndarray] = {}
    for place, value in enumerate(values):
        name, separator, path = value.partition("=")
        if not separator or Path(value).exists():
            name, path = f"#{place}", value
        found = read_arrays(path)
        if isinstance(found, dict) and not name.startswith("#"):
            if len(found) != 1:
                raise click.BadParameter(f"{path} holds {len(found)} arrays, which have names of their own: give it "
                                         f"without {name}=")
            found, = found.values()
        arrays.update({name: found} if isinstance(found, np.ndarray) else found)
    return arrays


def read_arrays(path: str | Path, option: str = "") -> np.ndarray | dict[str, np.ndarray]:
    """The array of a file, or several by name. Raises BadParameter: it is no file of NumPy's, or can't be read."""
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError,
            MemoryError) as error:  # damaged, of a method that Python has not, encrypted, of a size that nothing has
        raise click.BadParameter(f"{option}{path} is no .npy or .npz file that can be read: {error}") from None


def axes(context: click.Context, parameter: click.Parameter, value: str | None) -> dict[str, tuple[int, ...]] | None:
    """Axes by input, as NGRAPH_DYNAMIC tells them."""
    try:
        return variables.axes_by_input(value) if value is not None else None
    except ValueError:
        raise click.BadParameter(f"found {value!r}, expected NAME:AXIS,...: for example data:0,2,3") from None


def _backends(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For completion in a shell."""
    from ngraph_mxnet.program.backend import backends

    return [name for name in backends() if name.startswith(incomplete.upper())]


def tell(as_json: bool, found: Any, *parts: Any) -> None:
    """Print what was found: as JSON, or its parts for people, by default itself."""
    if as_json:
        click.echo(json.dumps(jsonable(found), indent=2))
    else:
        say(*(parts or (found,)))


def say(*parts: Any) -> None:
    """Print tables and the like, each row of which is one line in a pipe, and texts as they are; None is left out.
    NO_COLOR is respected."""
    console = Console(width=None if sys.stdout.isatty() else _PIPE, force_jupyter=False)
    for part in parts:
        if isinstance(part, str):
            click.echo(part)
        elif part is not None:
            console.print(part)


def file_error(error: OSError, path: object = "") -> click.ClickException:
    """The error to raise for a file that can't be read or written; `path`: where this error does not tell it."""
    name = error.filename or path
    return click.ClickException(f"{name}: {error.strerror}" if name else str(error))


def write_whole(path: Path, text: str) -> None:
    """Into a new file beside it first, so that nobody finds half of it, and an older one stays if that fails. A pipe is
    written to as it is, and so is whatever else is no file. Raises ClickException: it can't be written."""
    path = Path(os.path.realpath(path))
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            write_file(path, [text.encode()])
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None


model_argument = click.argument("model", type=FILE, metavar=f"MODEL.onnx|MODEL{SYMBOL_FILE}")
runnable_argument = click.argument("model", type=FILE, metavar=f"MODEL.onnx|MODEL{SYMBOL_FILE}|MODEL{IR_FILE}")
graph_argument = click.argument("model", type=FILE, metavar=f"MODEL.onnx|MODEL{SYMBOL_FILE}|GRAPH{IR_FILE}")
shape_option = click.option("--shape", "shapes", multiple=True, callback=_shape, metavar="NAME=D,D,...",
                            help="The shape of an input; once for each whose shape the model leaves open. A symbol "
                                 "needs those of its data inputs.")
dtype_option = click.option("--dtype", "dtypes", multiple=True, callback=pairs("NAME=DTYPE", "data=float32"),
                            metavar="NAME=DTYPE",
                            help="A symbol's input's element type, float32 if not given.")
input_option = click.option("--input", "--inputs", "arrays", multiple=True, callback=_arrays,
                            metavar="[NAME=]FILE.npy|FILE.npz",
                            help="An input; once for each, in the model's order or by name. A file .npz has several, "
                                 "by name.")
params_option = click.option("--params", type=FILE, metavar="MODEL-0000.params",
                             help="A symbol's weights; an ONNX model holds its own.")
backend_option = click.option("--backend", shell_complete=_backends, help="By default the one of NGRAPH_BACKEND.")
threads_option = click.option("--threads", type=click.IntRange(1), help="As OMP_NUM_THREADS, which it overrides.")
precision_option = click.option("--precision", type=click.Choice(["f32", "auto", "bf16", "int8"]),
                                help="By default that of NGRAPH_PRECISION; auto is bf16 where the CPU multiplies it "
                                     "fast; int8 takes a recipe of quantisation.")
recipe_option = click.option("--recipe", type=FILE, metavar="RECIPE.json",
                             help="For int8: what `quantize --recipe` wrote. By default that of NGRAPH_CALIBRATION.")
result_option = click.option("--result", "results", multiple=True, metavar="NAME",
                             help="Of all outputs, and values within, this one; once for each. What only the others "
                                  "need is left out.")
option_option = click.option("--option", "settings", multiple=True, callback=pairs("NAME=VALUE", "pins=conv0=CPU"),
                             metavar="NAME=VALUE",
                             help="An option of the backend, such as pins=conv*=CPU of HYBRID; once for each.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
store_option = click.option("--store", type=NEW_FILE, metavar="FILE",
                            help="The store of runs. By default NGRAPH_RUNS, or the user's own.")
record_option = click.option("--record/--no-record", default=None,
                             help="Add a run to the store (docs/experiments.md). By default where NGRAPH_RUNS is set.")


OF_A_MODEL = ("shape", "dtype", "params", "result", "backend", "threads", "precision", "recipe", "option")
"""The options of every command that takes a model, in this order. A command leaves out what means nothing there."""
_OF_BACKENDS = {"threads": "OMP_NUM_THREADS", "precision": "NGRAPH_PRECISION", "recipe": "NGRAPH_CALIBRATION"}
"""Options of backends, with the variables that they override."""


def set_variables(settings: dict[str, Any]) -> None:
    """Move the settings that variables hold, too, to these: for what MXNet runs, or what is told of it."""
    for name, variable in _OF_BACKENDS.items():
        if name in settings:
            os.environ[variable] = str(settings.pop(name))


def one_model(command: Callable[..., Any]) -> Any:
    """A command gets the Model, in place of the file and the options that belong to it. Raises NGraphError: as
    `model_of`."""
    @wraps(command)
    def called(*arguments: Any, model: str, params: str | None = None, dtypes: Mapping[str, str] | None = None,
               results: Sequence[str] = (), **given: Any) -> Any:
        from ngraph_mxnet.frontends.model import model_of

        return command(*arguments, model=model_of(model, params, dtypes, results), **given)

    return called


def takes(*names: str) -> Callable[[Any], Any]:
    """Several of these options, in this order; `model` stands for `OF_A_MODEL`. The command gets those of the backend
    as one argument, `settings`."""
    names = tuple(one for name in names for one in (OF_A_MODEL if name == "model" else (name,)))
    bundled = [name for name in names if name in _OF_BACKENDS]

    def decorated(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def called(*arguments: Any, **given: Any) -> Any:
            told = {name: given.pop(name) for name in bundled}
            settings = {name: value for name, value in told.items() if value is not None}
            return command(*arguments, settings={**settings, **given.pop("settings", {})}, **given)

        made = called if bundled or "option" in names else command
        return reduce(lambda made, name: globals()[f"{name}_option"](made), reversed(names), made)

    return decorated
