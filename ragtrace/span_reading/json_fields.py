"""Fields of spans in JSON documents, whatever the document's form."""

from __future__ import annotations

import base64
import re
from contextlib import suppress
from typing import Any, Final, cast

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
_BASE64: Final = re.compile(r"[0-9a-zA-Z+/]+={0,2}\Z")


def object_of(value: Any) -> dict[str, Any]:
    """Return *value* if it is a JSON object.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, dict):
        raise ValueError(f"not an object: {shown(value)}")
    return cast("dict[str, Any]", value)


def list_of(value: Any) -> list[Any]:
    """Return *value* if it is a list, or an empty list if it is null.

    Protobuf's JSON may write null in place of an empty list.

    Raises:
        ValueError: it is neither.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"not a list: {shown(value)}")
    return cast("list[object]", value)


def parse_id(value: Any, n_bytes: int, name: str) -> bytes:
    """Parse a trace id or span id of *n_bytes* bytes, in hexadecimal or base64.

    OTLP JSON has hexadecimal ids (perhaps with 0x or as a UUID), protobuf's JSON base64.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, str):
        text = value.removeprefix("0x").replace("-", "") if len(value) in (36, 2 + 2 * n_bytes) else value
        if len(text) == 2 * n_bytes:
            with suppress(ValueError):
                found = bytes.fromhex(text)
                if len(found) == n_bytes:  # spaces between bytes are skipped
                    return found
        if len(text.rstrip("=")) == (n_bytes * 4 + 2) // 3 and _BASE64.match(text):
            return base64.b64decode(text.rstrip("=") + "==")
    raise ValueError(f"{name} must be {n_bytes} bytes in hexadecimal or base64, got {shown(value)}")


def shown(value: Any) -> str:
    """Describe a JSON value for an error message, without the texts in it.

    Of an object the first keys are shown, of a list or string only the length.
    """
    if isinstance(value, dict):
        return f"an object with {', '.join(list(map(repr, cast('dict[str, Any]', value)))[:5]) or 'no keys'}"
    if isinstance(value, (str, list)):
        return f"{type(cast('object', value)).__name__} of length {len(cast('str', value))}"
    return repr(value)[:40]
