"""What `import ngraph_mxnet` offers, to programs and to type checkers, is the same."""

from __future__ import annotations

import ast
from pathlib import Path

import ngraph_mxnet

PACKAGE = Path(ngraph_mxnet.__file__).parent


def test_type_checkers_see_what_programs_get() -> None:
    """Lazily loaded names would be Any to them; only `name as name` is a name of the module to others."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    (table,) = (ast.literal_eval(node.value) for node in tree.body
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_LAZY")
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom)
            for alias in node.names if alias.asname == alias.name}
    assert seen == table and sorted(seen) == ngraph_mxnet.__all__
    assert (PACKAGE / "py.typed").exists()


def test_every_name_is_there() -> None:
    assert all(getattr(ngraph_mxnet, name) is not None for name in ngraph_mxnet.__all__)
