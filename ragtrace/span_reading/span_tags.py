"""Reader of the tags of a call from a span's attributes: ragtrace's own, and what other conventions have for it.

Session and user ids are read elsewhere, and are no tags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, cast

from ragtrace.capture.plain_json import parse_json
from ragtrace.capture.tags import kept_tags
from ragtrace.core import semconv
from ragtrace.core.tags import TagValue, valid_tags
from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.values import unmasked
from ragtrace.system.faults import faults

_OWN: Final = semconv.tag("")
_ASSOCIATION: Final = semconv.traceloop_association("")
_LANGFUSE: Final = semconv.langfuse_metadata("")
_IDS: Final = frozenset(
    ("session_id", "conversation_id", "thread_id", "chat_id", "user_id", semconv.OI_SESSION, semconv.OI_USER)
)
"""Names of sessions and users in metadata."""
_OF_FRAMEWORKS: Final = ("ls_", "lc_", "langgraph_", "checkpoint_", "langfuse_", "__")
"""Beginnings of names that LangChain, LangGraph and the like write into the metadata of their runs themselves."""
_LABEL_OF_FRAMEWORK: Final = re.compile(r"(?:seq|graph):step:.*|map:key:.*|(?:langsmith|langfuse):.*", re.DOTALL)
"""Pattern of tags that LangChain and LangGraph give their runs themselves."""
_LABEL: Final = re.compile(r"([^:=]+)[:=](.*)", re.DOTALL)
"""Pattern of a tag that is one text: name and value."""
_MOST_LABELS: Final = 100
"""Most tags of one list that are looked at."""


def tags_of(span: FinishedSpan) -> dict[str, TagValue] | None:
    """Return the tags in the attributes of *span*, or None if there are none.

    Of two of the same name, ragtrace's own counts first, then one of a list of tags, then an entry of metadata. Of
    metadata, which may be anything, only texts, booleans and numbers that can be tags are taken, and the others left.
    """
    own: dict[str, object] = {}
    metadata: dict[str, object] = {}
    for key, value in span.attributes.items():
        if key.startswith(_OWN):
            own[key[len(_OWN) :]] = value
        elif key.startswith(_ASSOCIATION):
            metadata[key[len(_ASSOCIATION) :]] = value
        elif key.startswith(_LANGFUSE):
            metadata[key[len(_LANGFUSE) :]] = value
    if semconv.OI_METADATA in span.attributes and semconv.OI_KIND in span.attributes:
        parsed = parse_json(span.text(semconv.OI_METADATA))
        metadata |= cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    labels = dict(_labels(span))
    if not (own or labels or metadata):
        return None
    said = {name: value for name, value in {**labels, **own}.items() if not _is_spoilt(span, value)}
    found = kept_tags(said, "spans of other instrumentations")
    tags: dict[str, object] = {**found}
    for name, value in metadata.items():
        if not (name in _IDS or name.startswith(_OF_FRAMEWORKS) or _is_spoilt(span, value)):
            tags.setdefault(name, value)
    return valid_tags(cast("dict[object, object]", tags)) or None


def _labels(span: FinishedSpan) -> Iterator[tuple[str, object]]:
    """Yield the tags that are single texts in a list: `name:value`, `name=value`, or a word, which is true."""
    for name in (semconv.OI_TAGS, semconv.LANGFUSE_TRACE_TAGS):
        listed: Any = span.attributes.get(name)
        listed = parse_json(listed) if isinstance(listed, str) else listed
        if not isinstance(listed, (list, tuple)):
            continue
        for label in list(cast("list[object]", listed))[:_MOST_LABELS]:
            if isinstance(label, str) and not _LABEL_OF_FRAMEWORK.fullmatch(label):
                pair = _LABEL.fullmatch(label)
                tag, value = (label, True) if pair is None else (pair[1], pair[2])
                if (tag := tag.strip()) not in _IDS:
                    yield tag, value.strip() if isinstance(value, str) else value


def _is_spoilt(span: FinishedSpan, value: object) -> bool:
    """Return whether *value* is a mask, or a text that was cut at the provider's limit, which would be another tag."""
    if not isinstance(value, str):
        return False
    if span.max_text_chars is not None and len(value) >= span.max_text_chars:
        faults.log_once(
            "tags of spans cut",
            "a tag in the attributes of a span is left out, as it was cut at the provider's limit of %d characters",
            span.max_text_chars,
        )
        return True
    return unmasked(value) is None
