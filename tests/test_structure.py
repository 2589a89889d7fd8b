"""The order in which packages may import each other, without circles, and that no module keeps lists of ops."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from ngraph_mxnet.base.registry import TARGETS as TARGETS_OF_THE_PACKAGE
from ngraph_mxnet.ir import all_ops

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ngraph_mxnet"
AUTOLOAD = ROOT / "ngraph_mxnet_autoload"
RUNTIME = ROOT / "runtime"
"""Another distribution: none of the package's parts, and nothing of it is imported there."""
MODULES = sorted(PACKAGE.rglob("*.py"))
SOURCES = sorted(path for path in (ROOT / "csrc").rglob("*") if path.suffix in (".h", ".cc"))
FOLDERS_OF_SOURCES: dict[str, tuple[str, ...]] = {
    "core": (),
    "artefact": ("core",),
    "audit": ("core",),
    "distributed": ("core",),
    "mxnet": ("core",),
    "csrc": ("core", "artefact", "audit", "distributed", "mxnet"),  # the Python module
}
"""What each folder of csrc includes beside itself."""
PUBLIC_HEADERS = {"ngraph_runtime.h"}
RUNTIME_MODULES = sorted((RUNTIME / "ngraph_runtime").rglob("*.py"))
SERVERS = {"serving/mlserver.py": {"mlserver"}}
"""Modules of the runtime that a server imports, and no other module."""

# Rooms from the ground up. A room imports from those in floors below its own; no part but a target itself imports the
# target: `base/registry.py` says where it is.
FLOORS = (
    {"base"},
    {"ir"},
    {"ops"},
    {"passes", "autodiff"},
    {"quantisation", "distributed"},
    {"program"},
    {"frontends", "targets"},
    {"plugin"},
    {"api"},
    {"quantisation.session"},
    {"tools"},
)
LOOSE = {"__init__", "__main__", "api"}
"""The modules beside the rooms."""
DISTINCT = ("frontends", "targets")
"""Rooms whose folders import nothing of each other."""
SUBROOMS = {("quantisation", "session")}
"""Folders on a floor of their own: `session` is what `quantize` does with a model of any kind."""


def _part_of(names: Sequence[str]) -> str:
    """The part of a module, whose name within the package is given in pieces."""
    return ".".join(names[: 1 + (names[0] in DISTINCT or tuple(names[:2]) in SUBROOMS)])


def _floor_of(part: str) -> int:
    room = part.partition(".")[0] if part.startswith(DISTINCT) else part
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def _part(module: Path) -> str:
    return _part_of(module.relative_to(PACKAGE).with_suffix("").parts)


@cache
def _tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


@cache
def _imports(module: Path) -> list[str]:
    """Full names of everything that the module imports, inside functions too."""
    found = []
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def _id(module: Path) -> str:
    return str(module.relative_to(PACKAGE))


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_import_order(module: Path):
    part = _part(module)
    if part in ("__init__", "__main__"):
        return
    for name in _imports(module):
        top, *rest = name.split(".")
        needed = _part_of(rest) if top == "ngraph_mxnet" and rest else part
        if needed not in (part, "_core"):
            shared = part.startswith(DISTINCT) and needed.partition(".")[0] == part.partition(".")[0] \
                and not (PACKAGE / needed.replace(".", "/")).is_dir()
            lower = _floor_of(needed) < _floor_of(part)
            assert shared or lower, f"{_id(module)} imports {name}"


def test_rooms():
    """Thirteen with csrc, and no module beside them but the public ones."""
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == {room.partition(".")[0] for floor in FLOORS for room in floor} - LOOSE and len(rooms) == 12
    assert {path.stem for path in PACKAGE.glob("*.py")} == LOOSE


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_only_the_plugin_imports_mxnet(module: Path):
    if _part(module) != "plugin":
        assert not [name for name in _imports(module) if name.split(".")[0] == "mxnet"]


def test_the_plugin_names_no_target() -> None:
    """The registry says which target trains, and the target its layouts and options."""
    for module in (PACKAGE / "plugin").rglob("*.py"):
        texts = {node.value for node in ast.walk(_tree(module)) if isinstance(node, ast.Constant)}
        assert not texts & {*TARGETS_OF_THE_PACKAGE}, module


def test_modules_of_tests_have_names_of_their_own() -> None:
    """pytest imports them by these, wherever they lie."""
    files = (ROOT / "tests").rglob("*.py")
    names = Counter(file.name for file in files if file.name not in ("__init__.py", "conftest.py"))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("module", RUNTIME_MODULES, ids=lambda path: path.name)
def test_the_runtime_needs_only_numpy(module: Path):
    """Also on Python 3.8, whose grammar it keeps to."""
    own = SERVERS.get(module.relative_to(RUNTIME / "ngraph_runtime").as_posix(), set())
    found = {name.split(".")[0] for name in _imports(module)} - {"ngraph_runtime", "numpy"} - own
    assert found <= sys.stdlib_module_names
    ast.parse(module.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("module", [*MODULES, *RUNTIME_MODULES], ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_say_what_they_are_for(module: Path):
    tree = _tree(module)
    assert ast.get_docstring(tree) or len(tree.body) <= 1  # a package's __init__ may be empty


# ---- no circles --------------------------------------------------------------------------------------------


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _circles(imports: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Modules of which each needs all others."""
    parts = nx.strongly_connected_components(nx.DiGraph((a, b) for a, b in imports if a != b))
    return sorted(sorted(part) for part in parts if len(part) > 1)


def _python_imports(sources: Mapping[str, ast.AST]) -> Iterator[tuple[str, str]]:
    """Who imports whom among these modules: also in functions, and for types only.

    That a package is imported with each of its modules does not count, nor what a table names to be loaded when asked.
    """
    for module, source in sources.items():
        for node in ast.walk(source):
            if isinstance(node, ast.Import):
                yield from ((module, alias.name) for alias in node.names if alias.name in sources)
            elif isinstance(node, ast.ImportFrom) and node.module in sources:
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    if alias.name != "_core":  # a library: it is none of the modules
                        yield module, name if name in sources else node.module


def _includes(sources: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Which of these files include which; a header and the source that implements it are one."""
    for file, source in sources.items():
        for included in re.findall(r'^#include "(.+)"$', source, re.MULTILINE):
            yield Path(file).stem, Path(included).stem


def test_no_circle_of_imports():
    modules = {_module_name(path): path for path in (*MODULES, *sorted(AUTOLOAD.glob("*.py")))}
    modules.update((_module_name(path).partition(".")[2], path) for path in RUNTIME_MODULES)
    circles = _circles(_python_imports({name: _tree(path) for name, path in modules.items()}))
    assert not circles, f"each needs the others: move what they share to a module of its own: {circles}"


def test_no_circle_of_includes():
    assert SOURCES
    assert not _circles(_includes({path.name: path.read_text() for path in SOURCES}))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "csrc")))
def test_folders_of_sources_include_one_way(source: Path):
    allowed = {*FOLDERS_OF_SOURCES[source.parent.name], source.parent.name}
    included = re.findall(r'^#include "(.+)"$', source.read_text(), re.MULTILINE)
    assert {path.partition("/")[0] for path in included} <= allowed | PUBLIC_HEADERS


def test_circles_of_imports_are_found():
    types_only = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import A"
    texts = {
        "p": "from p.a import A",
        "p.a": "def f():\n    import p.b",
        "p.b": "from p import c",
        "p.c": types_only,
        "p.d": "from p import A\nfrom p import _core",
        "p.e": "from p.d import D\nimport os",
    }
    sources = {name: ast.parse(text) for name, text in texts.items()}
    assert _circles(_python_imports(sources)) == [["p.a", "p.b", "p.c"]]
    sources["p.c"] = ast.parse("import p.e")
    assert _circles(_python_imports(sources)) == [["p", "p.a", "p.b", "p.c", "p.d", "p.e"]]


def test_circles_of_includes_are_found():
    sources = {"a.h": '#include "b.h"', "a.cc": '#include "a.h"', "b.h": "", "b.cc": '#include <c.h>\n#include "b.h"'}
    assert not _circles(_includes(sources))
    assert _circles(_includes({**sources, "b.cc": '#include "a.h"'})) == [["a", "b"]]


# ---- no lists of ops ---------------------------------------------------------------------------------------

OPS = all_ops().keys()
# What frontends name are the frameworks' operators, many of them spelled as ops are.
FRAMEWORKS = ("frontends/mxnet/attrs.py", "frontends/mxnet/rules/", "frontends/onnx/rules/",
              "frontends/onnx/writer/")
# Tables from op to implementation whose values are plain data, and why they are such.
TABLES = {
    ("targets/cpu/microkernels/variants.py", "ACTIVATIONS"): "the ops' numbers in compiled kernels",
    ("targets/cpu/params/reduction.py", "REDUCE_CODES"): "the ops' numbers in compiled kernels",
}


@cache
def _lists_of(module: Path) -> list[tuple[int, str, set[str]]]:
    return list(_lists(_tree(module)))


def _names(elements: Iterable[ast.expr | None]) -> set[str]:
    return {e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)} & OPS


def _implements(value: ast.expr) -> bool:
    return any(isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Lambda)) for node in ast.walk(value))


def _lists(node: ast.AST, place: str = "") -> Iterator[tuple[int, str, set[str]]]:
    """Line, enclosing name and ops of every collection of three or more op names, unless it maps them to functions."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        place = place or node.name
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        place = place or ast.unparse(target)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    found = set()
    if isinstance(node, (ast.Set, ast.List, ast.Tuple)):
        found = _names(node.elts)
    elif isinstance(node, ast.Dict):
        found = _names(key for key, value in zip(node.keys, node.values, strict=True) if not _implements(value))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value.split()
        found = _names(map(ast.Constant, words))
        found = found if 2 * len(found) >= len(words) else set()
    if len(found) >= 3 and place != "__all__":
        yield getattr(node, "lineno", 0), place, found
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict.fromkeys" and _implements(node.args[-1]):
        children.remove(node.args[0])
    for child in children:
        yield from _lists(child, place)


@pytest.mark.parametrize("module", MODULES, ids=_id)
def test_facts_about_ops_stand_with_the_ops(module: Path):
    """A neighbour asks for an op's facts (ir/opdef.py); only tables from op to implementation name ops."""
    if _part(module) == "ops" or _id(module).startswith(FRAMEWORKS):
        return
    found = [
        f"{_id(module)}:{line}: {place} lists {', '.join(sorted(names))}: ask for a fact of these ops (ir/opdef.py)"
        for line, place, names in _lists_of(module) if (_id(module), place) not in TABLES
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("source", [
    "KEEPS = frozenset({'abs', 'floor', 'relu'})",
    "def f(node):\n    return node.op.name in ('reshape', 'concat', 'slice', 'other')",
    "_UNARY = 'abs floor relu exp'.split()",
    "_CODES = _numbered('reduce_sum reduce_max reduce_min')",
    "COUNTS = {'abs': {'simple': 1}, 'exp': {'hard': 1}, 'divide': {'divide': 1}}",
    "COUNTS = dict.fromkeys(('abs', 'floor', 'relu'), 1)",
])
def test_lists_of_ops_are_found(source: str):
    assert len(list(_lists(ast.parse(source)))) == 1


@pytest.mark.parametrize("source", [
    "TABLE = {'abs': absolute, 'floor': lambda x: x, 'relu': make('relu')}",
    "TABLE = {**dict.fromkeys(('abs', 'floor', 'relu'), rule), 'exp': exp}",
    "def f():\n    'abs floor relu'",
    "raise ValueError('found abs or floor or relu, and expected something that can be computed')",
    "PAIR = ('abs', 'relu')",
])
def test_tables_of_implementations_are_no_lists(source: str):
    assert not list(_lists(ast.parse(source)))


# ---- targets are asked -------------------------------------------------------------------------------------

TARGETS = {_part_of(place.where.split(".")[1:]): name for name, place in TARGETS_OF_THE_PACKAGE.items()}
"""The name of each target by its part of the package."""
TOLD_APART: dict[str, str] = {"base/registry.py": "the names, and where each target is"}
"""Modules beside the targets that may name them to tell them apart, and why."""
_CLASSES = {place.where.partition(":")[2] for place in TARGETS_OF_THE_PACKAGE.values()}
_LIKELY = ("backend", "target", "chosen", "planner")
"""What variables that hold a target are called."""


def _is_target(node: ast.expr) -> bool:
    """A target's name or class, in a collection too, or the attribute `name` of a target."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(map(_is_target, node.elts))
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.rstrip(":") in {*TARGETS_OF_THE_PACKAGE, *_CLASSES}
    words = ast.unparse(node).split("(")[0].split(".")
    return words[-1] in _CLASSES or (len(words) > 1 and words[-1] == "name" and words[-2].endswith(_LIKELY))


def _is_in_a_target(name: str) -> bool:
    """Whether this is the full name of something in the package of a target."""
    package, *rest = name.split(".")
    return package == "ngraph_mxnet" and bool(rest) and _part_of(rest) in TARGETS


def _told_apart(tree: ast.AST) -> Iterator[str]:
    """Where code asks which target it has, or reaches into one's package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            found = any(map(_is_target, (node.left, *node.comparators)))
        elif isinstance(node, ast.Dict):
            found = any(key is not None and _is_target(key) for key in node.keys)
        elif isinstance(node, ast.Call):
            asks = ast.unparse(node.func).endswith(("isinstance", "issubclass", "startswith"))
            found = asks and any(map(_is_target, node.args))
        elif isinstance(node, ast.match_case):
            found = isinstance(node.pattern, ast.MatchValue) and _is_target(node.pattern.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = " " not in node.value and _is_in_a_target(node.value.partition(":")[0])
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found = any(map(_is_in_a_target, names))
        else:
            continue
        if found:
            yield f"{getattr(node, 'lineno', 0)}: {ast.unparse(node).splitlines()[0]}"


@pytest.mark.parametrize("module", [m for m in MODULES if _part(m) not in TARGETS], ids=_id)
def test_targets_are_asked_and_not_told_apart(module: Path):
    """What others need to know of a target stands in the contract (program/backend.py)."""
    found = [] if _id(module) in TOLD_APART else list(_told_apart(_tree(module)))
    assert not found, f"{_id(module)} tells targets apart; ask the backend:\n" + "\n".join(found)


@pytest.mark.parametrize("module", [m for m in MODULES if _part(m) in TARGETS], ids=_id)
def test_targets_do_not_reach_into_each_other(module: Path):
    for name in _imports(module):
        package, *rest = name.split(".")
        part = _part_of(rest) if package == "ngraph_mxnet" and rest else ""
        assert part not in TARGETS.keys() - {_part(module)}, f"{_id(module)} imports {name}"


@pytest.mark.parametrize("source", [
    "if backend.name == 'CPU': pass",
    "if 'NNP' != name: pass",
    "if self.backend.name == other: pass",
    "found = name in ('CPU', 'INTERPRETER')",
    "if isinstance(backend, NNPBackend): pass",
    "if isinstance(backend, (CPUBackend, int)): pass",
    "if type(backend).__name__ == 'HybridBackend': pass",
    "if name.startswith('NNP:'): pass",
    "LOADERS = {'CPU': load}",
    "match name:\n    case 'NNP': pass",
    "from ngraph_mxnet.targets.cpu.report import contractions",
    "def f():\n    import ngraph_mxnet.targets.nnp.device",
    "importlib.import_module('ngraph_mxnet.targets.cpu.program.programs')",
])  # fmt: skip
def test_telling_targets_apart_is_found(source: str):
    assert len(list(_told_apart(ast.parse(source)))) == 1


@pytest.mark.parametrize("source", [
    "backend = get_backend('CPU')",
    "raise ConfigError(f'the backend {backend.name} has none; the backend CPU has')",
    "if backend.costs(graph, options) is None: pass",
    "if node.name == other.name: pass",
    "from ngraph_mxnet.program.backend import Backend",
])  # fmt: skip
def test_asking_a_target_is_not_telling_it_apart(source: str):
    assert not list(_told_apart(ast.parse(source)))


def test_every_module_that_may_tell_targets_apart_does():
    assert all(list(_told_apart(_tree(PACKAGE / name))) for name in TOLD_APART)


# ---- parameters by name ------------------------------------------------------------------------------------


def _numbered(tree: ast.AST) -> Iterator[str]:
    """Reads of `ints` and `floats` at a place that is a number, or a sum with one: `ints[3]`, `floats[2 + i]`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("ints", "floats"):
            index = node.slice.left if isinstance(node.slice, ast.BinOp) else node.slice
            if isinstance(index, ast.Constant):
                yield ast.unparse(node)


@pytest.mark.parametrize("module", [m for m in MODULES if _id(m).startswith("targets/cpu/")], ids=_id)
def test_kernels_read_their_parameters_by_name(module: Path):
    found = list(_numbered(_tree(module)))
    assert not found, f"{_id(module)} reads {', '.join(found)}: use the names of its record (targets/cpu/params)"


def test_numbered_parameters_are_found():
    source = "def kernel(ints, floats):\n    return ints[3] + ints[4 + axis] + floats[0] + ints[axis] + p.kernel.h"
    assert len(list(_numbered(ast.parse(source)))) == 3


def test_every_table_that_may_name_ops_does():
    found = {(_id(module), place) for module in MODULES for _, place, _ in _lists_of(module)}
    assert TABLES.keys() <= found


def test_test_files_have_names_of_their_own():
    """pytest imports them all as top-level modules."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted(name for name in set(names) if names.count(name) > 1)
