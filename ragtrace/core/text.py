"""Text that every backend can store."""

from __future__ import annotations


def encodable(text: str) -> str:
    """Return *text* in a form that UTF-8 can hold: surrogate pairs joined, lone surrogates and NUL as U+FFFD.

    Protocol buffers refuse surrogates, and a backend on PostgreSQL refuses NUL; one such character would lose a whole
    batch of spans. Other control characters do no harm in either.
    """
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
