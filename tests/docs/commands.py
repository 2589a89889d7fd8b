"""Commands of the documentation's shell blocks, held to what runs them: options that exist, scripts that are there."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import click
from blocks import ROOT

from ngraph_mxnet.base import config
from ngraph_mxnet.tools.cli.commands import main

READERS_FILES = {"your_script.py", "script.py", "SCRIPT", "serve.py"}
"""Scripts that the reader has."""
OTHERS_VARIABLES = re.compile(r"(OMP|GOMP|MXNET|NGRAPH_RUNTIME)_\w+|PYTHON|PATH|CXX|SLOW_LANE_TURN|HYPOTHESIS_PROFILE")
OTHER_TOOLS = {"cc", "cmake", "eval", "gunicorn", "pytest", "sqlite3", "."}
"""What this project does not define."""
WRAPPERS = {"chrt": 2, "numactl": 2}
"""What runs a command, by how many words stand before it."""


class CommandError(Exception):
    """A command is none, or takes no such option; the text says which."""


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of each command, without comments; lines that end with a backslash go on."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while "&&" in words:
            yield words[:words.index("&&")]
            words = words[words.index("&&") + 1:]
        if words:
            yield words


def check(words: list[str]) -> None:
    """Raises:
        CommandError: the command can't run as it stands, in a folder with the reader's files.
    """
    while words and (assigned := re.fullmatch(r"([A-Z_]+)=.*", words[0])):
        if assigned[1] not in config.VARIABLES and not OTHERS_VARIABLES.fullmatch(assigned[1]):
            raise CommandError(f"{assigned[1]} is a variable of nothing here")
        words = words[1:]
    if not words:
        return
    tool, *arguments = words
    if tool == "mpirun":
        while arguments and arguments[0].startswith("-"):
            arguments = arguments[2:]  # each of the options that are named has a value
        check(arguments)
    elif tool in WRAPPERS:
        check(arguments[WRAPPERS[tool]:])
    elif tool.startswith(("scripts/", "examples/")):
        _check_file(tool, arguments)
    elif tool in CHECKS:
        CHECKS[tool](arguments)
    elif tool not in OTHER_TOOLS:
        raise CommandError(f"{tool}: neither a command of this project nor a known tool")


def _check_python(arguments: list[str]) -> None:
    if arguments[:2] == ["-m", "ngraph_mxnet"]:
        check_click(arguments[2:])
    elif arguments[0] == "-c":
        ast.parse(arguments[1])
    elif arguments[0] == "-m":
        if arguments[1] not in ("venv", "sphinx", "pytest"):
            raise CommandError(f"python -m {arguments[1]}: not a module that is known here")
    elif arguments[0] not in READERS_FILES:
        _check_file(arguments[0], arguments[1:])


def check_click(arguments: list[str]) -> None:
    """That `python -m ngraph_mxnet` takes these words, in a folder with the files that they name: parsed, not run."""
    try:
        parent = click.Context(main, **main.context_settings)
        name, command, rest = main.resolve_command(parent, arguments)
        assert command is not None and name is not None
        command.make_context(name, list(rest), parent)
    except click.exceptions.Exit:  # --help
        return
    except click.ClickException as error:
        raise CommandError(f"python -m ngraph_mxnet {' '.join(arguments)}: {error.format_message()}") from None


def _check_file(name: str, arguments: list[str]) -> None:
    path = ROOT / name
    if not path.is_file():
        if name.startswith("examples/c/") and path.with_suffix(".c").is_file():
            return  # which make builds
        raise CommandError(f"{name} is not there")
    known = options_of(path)
    for word in arguments:
        option = word.strip("[]").partition("=")[0]
        if re.fullmatch(r"--?[a-z][\w-]*", option) and option not in known and not _passed_on(path, option):
            raise CommandError(f"{name} has no option {option}")


def _passed_on(path: Path, option: str) -> bool:
    """scripts/test.sh gives pytest what it does not know."""
    return path.name == "test.sh" and option in ("-k", "-m", "-n", "--update-goldens")


def options_of(path: Path) -> set[str]:
    """Words with hyphens in a script, and in the modules beside it that it imports: its options are among them."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sh":
        called = [path.parent / name for name in re.findall(r"scripts/(\w+\.py)", text)]
        return set(re.findall(r"--[a-z][\w-]*", text)).union(*map(options_of, (one for one in called if one.is_file())))
    tree = ast.parse(text)
    found = {part for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
             for part in re.findall(r"(?<!\S)--?[a-z][\w-]*", node.value.replace("/", " "))}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = path.parent.joinpath(*node.module.split("."))
            inner = [module.with_suffix(".py"), *(module / f"{alias.name}.py" for alias in node.names)]
            found = found.union(*map(options_of, (one for one in inner if one.is_file())))
    return found


def _check_pip(arguments: list[str]) -> None:
    """Extras that exist, folders that hold a project."""
    for word in arguments[1:]:
        local = re.fullmatch(r"(\.[\w/]*)(?:\[([\w,]+)\])?", word)
        if local is None:
            continue
        project = ROOT / local[1] / "pyproject.toml"
        if not project.is_file():
            raise CommandError(f"pip {' '.join(arguments)}: {local[1]} holds no project")
        table = project.read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2].partition("\n[")[0]
        unknown = set(filter(None, (local[2] or "").split(","))) - set(re.findall(r"^(\w+) = ", table, re.MULTILINE))
        if unknown:
            raise CommandError(f"pip {' '.join(arguments)}: no extra {', '.join(sorted(unknown))}")


def _check_make(arguments: list[str]) -> None:
    if not (ROOT / arguments[arguments.index("-C") + 1] / "Makefile").is_file():
        raise CommandError(f"make {' '.join(arguments)}: there is no Makefile")


def _check_runtime(arguments: list[str]) -> None:
    known = options_of(ROOT / "runtime" / "ngraph_runtime" / "run.py")
    unknown = [word for word in arguments if word.startswith("--") and word.partition("=")[0] not in known]
    if unknown:
        raise CommandError(f"ngraph-run has no option {', '.join(unknown)}")


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "python": _check_python, "python3": _check_python, "ngraph-mxnet": check_click, "ngraph-run": _check_runtime,
    "pip": _check_pip, "make": _check_make,
}
