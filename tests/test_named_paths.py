"""What the documents name is there: files and folders of the tree, and what links point to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKING = [*DOCUMENTS, *(ROOT / name for name in ("CHANGELOG.md", "examples/README.md", "runtime/README.md"))]
FOLDERS = ("cmake", "csrc", "docs", "examples", "ngraph_mxnet", "ngraph_mxnet_autoload", "scripts", "tests", ".ci")
"""The tree; other folders beside them are built or belong to somebody's environment."""
SHARED = "runtime"
"""A folder of the root and one of the package: a path that begins with it may mean either."""
EXTENSIONS = "cc h in json md pth py sh toml".split()
BUILT = {"ngraph_mxnet/_core*.so"}
OTHERS = {
    "-symbol.json", ".dist-info/sboms/NAME.cdx.json", "MAR-INF/MANIFEST.json", "MODEL-symbol.json", "NAME-shapes.json",
    "NAME-symbol.json", "Python.h", "code/inference.py", "hyperparams.json", "image-classification-symbol.json",
    "measured.json", "model-settings.json", "model-shapes.json", "model-symbol.json", "model_algo_1-symbol.json",
    "net-symbol.json", "network.json", "recipe.json", "results.json", "script.py", "serve.py", "signature.json",
    "trace.json", "your_script.py",
}
"""Files of readers, of servers, of Python and of examples' output."""

_NAME = re.compile(r"(?<![\w/.<>*$~:=-])((?:[\w.*<>{},-]+/)+[\w.*<>{}-]*|[\w*<>-]+\.\w+)(?!\w)")
_LINK = re.compile(r"\]\(([^)\s]*)\)")


@cache
def tree() -> frozenset[str]:
    """Files and folders, by their paths from the root."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in (*FOLDERS, SHARED):
        found += [ROOT / folder, *(ROOT / folder).rglob("*")]
    names = [path.relative_to(ROOT) for path in found]
    return frozenset(name.as_posix() for name in names if not {"__pycache__", "build"} & set(name.parts))


@cache
def inner_folders() -> frozenset[str]:
    """The names of folders that a path may begin with which is given from somewhere within the tree."""
    return frozenset(Path(name).name for name in tree() if (ROOT / name).is_dir())


def named_paths(text: str) -> Iterator[str]:
    """What looks like a file or folder of the tree: a known extension, or a first part that is a folder there."""
    for match in _NAME.finditer(text):
        name = match[1].rstrip(".,/")
        first, *rest = name.split("/")
        is_file = re.search(rf"[\w>*]\.({'|'.join(EXTENSIONS)})$", name) is not None and not name.startswith("..")
        if (is_file or (rest and first in inner_folders())) and name not in BUILT | OTHERS:
            yield name


def is_there(name: str) -> bool:
    """From the root where the first part is a folder of it, else from wherever in the tree; `<...>` is any name."""
    pattern = re.sub(r"<[^>]*>", "*", name)
    if "/" in name and name.split("/")[0] in FOLDERS:
        return any(fnmatch(path, pattern) for path in tree())
    return any(fnmatch(path, pattern) or fnmatch(path, f"*/{pattern}") for path in tree())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_that_are_named_exist(document: Path) -> None:
    missing = dict.fromkeys(name for name in named_paths(_LINK.sub("", document.read_text())) if not is_there(name))
    assert not missing, f"{document.name} names what is not in the tree: {', '.join(missing)}"


@pytest.mark.parametrize("document", LINKING, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document: Path) -> None:
    for target in _LINK.findall(document.read_text()):
        path, _, heading = target.partition("#")
        if re.match(r"\w+:", target):
            continue
        found = (document.parent / path).resolve() if path else document
        assert found.exists(), f"{document.name} links to {target}, which is not there"
        assert not heading or heading in headings(found), f"{document.name} links to {target}: no such heading"


def headings(document: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    lines = [line.lstrip("#").strip() for line in document.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_what_is_not_there_is_found() -> None:
    text = ("`ngraph_mxnet/targets/cpu/planning/algorithm.py`, `cpu/nothing.py`, `csrc/executor`, 3 images/s of "
            "`net-symbol.json`, `gone.py`")
    assert [name for name in named_paths(text) if not is_there(name)] == ["cpu/nothing.py", "csrc/executor", "gone.py"]


_CALL = re.compile(r"(?<![\w/.])([a-z_]+)\.([A-Za-z_]+(?:\.[A-Za-z_]+)?)")


def journey() -> list[tuple[str, str]]:
    """(module, name) of each step of the picture in docs/plugin.md."""
    text = (ROOT / "docs" / "plugin.md").read_text()
    picture = text.partition("## The ways to a compiled graph")[2].split("```")[1]
    return _CALL.findall(picture)


GUIDE = ROOT / "CONTRIBUTING.md"
_QUOTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\([^`]*\))?`")
_EXTERNAL = {"mxnet": "the package", "emulate": "an extra in pyproject.toml"}
"""Names that no Python of the tree defines, and what they are."""


def quoted_names(text: str) -> list[str]:
    """What stands in backquotes and could be a name in Python, in the order of the text."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return list(dict.fromkeys(_QUOTED.findall(prose)))


@cache
def all_names() -> frozenset[str]:
    """Every name that the tree's Python gives to something: functions, classes, variables, arguments; and strings that
    look like names, as environment variables do."""
    found: set[str] = set()
    paths = (path for folder in (*FOLDERS, SHARED) for path in (ROOT / folder).rglob("*.py"))
    for path in (path for path in paths if path != Path(__file__)):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.arg):
                found.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found.add(node.value)
    return frozenset(found)


def is_named(name: str) -> bool:
    """A file, folder or module of the tree, or what one defines; of `a.b.c` each part."""
    known = all_names() | inner_folders() | _EXTERNAL.keys()
    return is_there(name) or all(part in known or is_there(f"{part}.py") for part in name.split("."))


def test_names_in_the_guide_exist() -> None:
    missing = [name for name in quoted_names(GUIDE.read_text()) if not is_named(name)]
    assert not missing, f"CONTRIBUTING.md names {', '.join(missing)}, which nothing in the tree is called"


def test_names_that_do_not_exist_are_found() -> None:
    text = "`register_op`, `runtime.backend.Backend`, `rule(x)`, `runtime.backend.Nothing`, `regster_op`"
    assert [name for name in quoted_names(text) if not is_named(name)] == ["runtime.backend.Nothing", "regster_op"]


def defined(path: Path) -> set[str]:
    """Functions, classes, and methods as `Class.method`."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return found


def test_the_ways_to_a_compiled_graph_are_long():
    assert len(journey()) >= 11


@pytest.mark.parametrize(("module", "name"), journey())
def test_the_journey_of_a_bind_names_what_is_there(module: str, name: str):
    assert any(name in defined(path) for path in (ROOT / "ngraph_mxnet").rglob(f"{module}.py"))
