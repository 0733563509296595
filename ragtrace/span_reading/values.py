"""Helpers shared by the span readers: JSON in attributes, numbered attributes, masked texts and token counts."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ragtrace.capture.fields import whole_of
from ragtrace.capture.plain_json import is_too_large
from ragtrace.core import semconv
from ragtrace.core.step import ErrorRecord, Step, StepKind
from ragtrace.core.types import Timing, Usage
from ragtrace.span_reading.finished_span import FinishedSpan

_MOST_LITERAL_CHARS: Final = 1_000_000
_NS: Final = 1_000_000_000
_MASK: Final = re.compile(
    r"\s*(?:\[REDACTED[^\]]{0,40}\]|<REDACTED[^>]{0,40}>|_*REDACTED_*|\[FILTERED\]|\[SCRUBBED DUE TO .{0,80}\]|\*{3,})"
    r"\s*",
    re.IGNORECASE,
)
_JSON_START: Final = re.compile(r'\s*(?:\{\s*["}]|\[\s*[\[{"\]])')
"""Pattern of the beginning of a JSON object, or of an array of objects, arrays or strings."""
_DECLARED_START: Final = re.compile(r"\s*(?:[\[\"]|\{(?!'))")
"""Pattern of the beginning of a text that is JSON if it is declared as JSON. `{'` begins the `repr` of a dict."""
_LITERAL: Final = re.compile(
    r"""'(?:[^'\\\n]|\\[\\'"nrtxuU])*'|"(?:[^"\\\n]|\\[\\'"nrtxuU])*"|\b(?:None|True|False)\b|[()]"""
    r"|<[^<>]{0,200}(?:<[^<>]{0,200}>[^<>]{0,200}){0,8}>"
)
"""Pattern of what the `repr` of a value writes otherwise than JSON: texts, constants, tuples, and objects such as
`<function run.<locals>.<lambda> at 0x7f>`. Of other escape sequences the parser would warn, on the error stream of the
application."""
_JSON_OF_LITERAL: Final = {"True": "true", "False": "false", "(": "[", ")": "]"}
_JSON_END: Final = re.compile(
    r'(?:"[^"\\]*(?:\\.[^"\\]*)*\\?|u[0-9a-fA-F]{0,3}|-|\.|[eE][+-]?|t|tr|tru|f|fa|fal|fals|n|nu|nul)?\s*(?:\.\.\.|…)?\s*',
    re.DOTALL,
)
"""Pattern of what a JSON parser does not understand of a text that breaks off: the rest of a string, number or word."""


def parse_literal(text: str) -> Any:
    """Parse the Python `repr` of a dict, a list, texts and numbers, which some instrumentations write in place of JSON.

    A function or another object without contents, such as `<function f at 0x7f>`, is None. None, too, if *text* is
    anything else, or too large.
    """
    if len(text) > _MOST_LITERAL_CHARS:
        return None
    try:
        return json.loads(_LITERAL.sub(_literal_as_json, text))
    except (ValueError, SyntaxError, RecursionError):
        return None


def _literal_as_json(found: re.Match[str]) -> str:
    literal = found[0]
    if literal[0] not in "'\"":
        return _JSON_OF_LITERAL.get(literal, "null")
    return json.dumps(ast.literal_eval(literal) if "\\" in literal else literal[1:-1])


def begins_like_json(text: str) -> bool:
    """Return whether *text* begins as JSON objects, and arrays of objects, arrays or strings, do."""
    return _JSON_START.match(text) is not None


def is_unreadable_json(text: str, *, is_declared: bool = False) -> bool:
    """Return whether *text*, which `parse_json` could not parse, is broken JSON and not what a person wrote.

    Broken JSON begins like JSON and breaks off before its end, is nested too deeply, or is too large. A person may
    write "[urgent] where is my order?", which begins otherwise, or `{"a": 1} is what in YAML?`, which does not break
    off.

    Args:
        text: the text.
        is_declared: whether the span declares the text as JSON. Then a bracket or a quotation mark at the beginning
            is enough.
    """
    if is_declared:
        return _DECLARED_START.match(text) is not None
    if not begins_like_json(text):
        return False
    if is_too_large(text):
        return True
    try:
        json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        return _JSON_END.fullmatch(text, error.pos) is not None
    except (ValueError, RecursionError):  # a number of too many digits
        return True
    return True  # all of it is JSON but for line breaks in its strings


def unmasked(text: str | None) -> str | None:
    """Return *text*, or None if an instrumentation has replaced the text by a mask such as `__REDACTED__`."""
    # Most characters of a text that may be a mask.
    return None if text is None or (len(text) <= 120 and _MASK.fullmatch(text)) else text


def numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Group the attributes `<prefix>.<index>.<name>` into one dict for each index, in order."""
    found: dict[int, dict[str, Any]] = {}
    start = len(prefix) + 1
    for key, value in attributes.items():
        if key.startswith(prefix) and key[start - 1 : start] == ".":
            index, _, name = key[start:].partition(".")
            if name and index.isdecimal() and len(index) < 8:
                found.setdefault(int(index), {})[name] = value
    return [found[index] for index in sorted(found)]


def new_step(span: FinishedSpan, kind: StepKind) -> Step:
    """Create an ended step of *kind* with the times and the error of *span*, but without texts."""
    step = Step()
    step.kind, step.ended, step.written = kind, True, True
    step.end_ns = span.end_ns
    if span.error_type is not None:
        step.error = ErrorRecord(span.error_type, None, "")
    step.timing = Timing(max(0, span.end_ns - span.start_ns) / _NS)
    return step


def usage_of(span: FinishedSpan, input_name: str, output_name: str) -> Usage:
    """Return the token counts in two span attributes, with None for a count that is missing or not a whole number.

    No prompt has 0 tokens: other instrumentations say so of streams, of which they know none.
    """
    given, written = whole_of(span.attributes.get(input_name)), whole_of(span.attributes.get(output_name))
    is_unknown = given == 0 and span.scope != semconv.SCOPE
    return Usage() if is_unknown else Usage(given, written)
