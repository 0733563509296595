"""Parser of the `repr` of Python objects, which some instrumentations write in place of JSON.

Nothing is evaluated: the text is parsed, and only literals, containers and calls of constructors are read.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from typing import Any, Final

_MOST_CHARS: Final = 1_000_000
_MOST_DEPTH: Final = 60
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_OPERATORS: Final = _OPENING | _CLOSING | frozenset(",:=-")
_ESCAPES: Final = frozenset("\\'\"nrtxuU")
"""Characters that may follow a backslash in the `repr` of a string."""
_LITERALS: Final = frozenset({"None", "True", "False"})


def parse_repr(text: str) -> Any:
    """Parse the Python `repr` *text* into literals, containers, and a dict of the fields for each object.

    `Message(_role=<Role.USER: 'user'>, text='Why?')` is `{"role": "user", "text": "Why?"}`; an object without fields,
    such as `<function f at 0x7f>`, is None. None, too, if *text* is anything else.
    """
    if len(text) > _MOST_CHARS:
        return None
    try:
        return _value(ast.parse(_source(text), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, tokenize.TokenError, RecursionError, MemoryError):
        return None


def _source(text: str) -> str:
    """Return the text of a `repr` with each `<Name: literal>` replaced by its literal, and other `<...>` by None.

    Raises:
        ValueError: if *text* holds anything but literals, containers and calls, or is nested too deeply for the parser.
    """
    tokens: list[tuple[int, str]] = []
    inside: list[tuple[int, str]] | None = None
    """Tokens of the `<...>` that is being read; None outside of one."""
    angles = depth = 0
    before = ""
    for kind, string, *_ in tokenize.generate_tokens(io.StringIO(text).readline):
        if kind == tokenize.OP and set(string) in ({"<"}, {">"}):
            angles += len(string) if string[0] == "<" else -len(string)
            if angles <= 0 and inside is not None:
                tokens += _literal(inside)
            inside = [] if angles > 0 and inside is None else inside if angles > 0 else None
            if angles < 0:
                raise ValueError("unbalanced")
        elif inside is not None:
            inside.append((kind, string))
        else:
            _check(kind, string, before)
            depth += (string in _OPENING) - (string in _CLOSING) if kind == tokenize.OP else 0
            if depth > _MOST_DEPTH:
                raise ValueError("nested too deeply")
            tokens.append((kind, string))
        before = string
    return tokenize.untokenize(tokens)


def _check(kind: int, string: str, before: str) -> None:
    """Raise ValueError if a token cannot come from the `repr` of an object, such as an operator or a keyword.

    Chains such as `a()()` or `--1` are rejected, too: the parser recurses for each link, although no bracket is nested.

    Args:
        kind: type of the token, as defined by the module `tokenize`.
        string: text of the token.
        before: text of the token before it.
    """
    if kind == tokenize.OP:
        is_chained = (string in _OPENING and before in _CLOSING) or string == "-" == before
        if string not in _OPERATORS or is_chained:
            raise ValueError(f"unexpected {string!r}")
    elif kind == tokenize.NAME:
        if keyword.iskeyword(string) and string not in _LITERALS:
            raise ValueError(f"unexpected {string!r}")
    elif kind == tokenize.STRING:
        # The parser warns of any other escape sequence, on the error stream of the application.
        is_plain = all(escape[1] in _ESCAPES for escape in re.finditer(r"\\(.)", string, re.DOTALL))
        if not is_plain or "f" in string.partition(string[-1])[0].lower():
            raise ValueError("unexpected string")
    elif kind not in (tokenize.NUMBER, tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER):
        raise ValueError(f"unexpected {string!r}")


def _literal(tokens: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the literal in the tokens of `<Role.USER: 'user'>`, or the token None for any other `<...>`."""
    is_member = len(tokens) == 5 and tokens[1][1] == "." and tokens[3][1] == ":"
    is_plain = is_member and tokens[4][0] in (tokenize.STRING, tokenize.NUMBER)
    return [tokens[4]] if is_plain else [(tokenize.NAME, "None")]


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Dict):
        return {
            _value(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None
        }
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.UnaryOp):
        number = _value(node.operand)
        if isinstance(number, (int, float)):
            return -number
    if isinstance(node, ast.Call):
        return {each.arg.lstrip("_"): _value(each.value) for each in node.keywords if each.arg is not None}
    raise ValueError("neither a literal nor a constructor")
