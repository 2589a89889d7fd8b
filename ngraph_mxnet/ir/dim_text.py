"""Reads sizes as `dims` prints them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ngraph_mxnet.errors import GraphError
from ngraph_mxnet.ir.dims import Dim
from ngraph_mxnet.ir.sizes import greatest, least, where

Symbols = Mapping[str, Dim]

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Gt: operator.gt, ast.LtE: operator.le,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": least, "max": greatest, "where": where}


def parse_dim(text: str, symbols: Symbols) -> Any:
    """The size that `text` writes: an int, or a `Dim` of these symbols.

    Raises:
        GraphError: it is no size, or names a symbol that there is not.
    """
    if text.isdigit():
        return int(text)
    try:
        return _read(ast.parse(text.strip(), mode="eval").body, symbols)
    except (SyntaxError, ValueError, TypeError, ZeroDivisionError, RecursionError) as error:
        raise GraphError(f"size {text!r}: found what is no size, expected such as (H + 1)//2: {error}") from None


def parse_dims(text: str, symbols: Symbols) -> tuple[Any, ...]:
    """Sizes with commas between."""
    return tuple(parse_dim(part, symbols) for part in split_sizes(text))


def split_sizes(text: str) -> list[str]:
    """The parts between commas outside parentheses."""
    if "(" not in text:
        return [part for part in text.split(",") if part]
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [part for part in (*parts, text[start:]) if part]


def _read(node: ast.AST, symbols: Symbols) -> Any:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            if name not in symbols:
                raise ValueError(f"there is no symbol {name}, only {', '.join(symbols) or 'none'}")
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand, symbols)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_read(left, symbols), _read(right, symbols))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_read(left, symbols), _read(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_read(arg, symbols) for arg in args))
    raise ValueError(f"found {ast.unparse(node)}")
