"""Retrieved documents out of what a retriever returned or a generator was given."""

from __future__ import annotations

from dataclasses import replace
from time import thread_time
from typing import Final, cast

from ragtrace.capture import names
from ragtrace.capture.messages import parts_text
from ragtrace.capture.reading import (
    MAX_DEPTH,
    MAX_LOOKS,
    Get,
    Looks,
    first_label,
    first_number,
    first_text,
    getter,
    is_list,
    items_of,
    label_of,
    number_of,
    peel,
    shape_of,
    text_of,
    values_of,
)
from ragtrace.capture.records import document, flat_passage, flat_passages, scored_passage
from ragtrace.capture.report import describe, failed, foreign, warn, warn_unread
from ragtrace.core.types import Document

MAX_DOCUMENTS: Final = 1_000
MAX_SECONDS = 0.004
"""CPU time for the documents of one value that take a search: the application's request waits for it."""
_ITEMS_AT_A_TIME: Final = 16
"""Between two looks at the clock, which takes as long as a passage."""
_MOST_AT_A_TIME: Final = 0.001
"""Seconds that count of such an interval: a longer one may be an interrupt, for which no document is left out."""
_LOOKS_EACH: Final = 4
"""Bounds the work on nested values: each list item and each record inside a record is one look."""
_MAX_COMPONENTS = 20


def documents(value: object, looks: Looks | None = None) -> tuple[Document, ...] | None:
    """The documents in *value*, in its order, duplicates kept.

    Args:
        value: strings; records (dicts, objects) with a text field; LangChain, LlamaIndex, Haystack and OpenAI results;
            pairs with a score; lists of any of them; dicts around such a list. Iterators are left alone.

    Returns:
        None if *value* cannot be understood (None itself included), () if it is understood and empty. At most
        `MAX_DOCUMENTS`, or what takes `MAX_SECONDS`; what is cut off or skipped is counted and logged once. Never
        raises.
    """
    try:
        if type(value) is str:
            return (document(value),)
        if (plain := _plain(value)) is not None:
            return plain
        search = _Search(MAX_LOOKS if looks is None else looks.left)
        understood = search.whole(value)
        if looks is not None:
            looks.left -= max(0, search.looks - _LOOKS_EACH * len(search.found))
        if search.cut or search.skipped is not None:
            search.report()
        return tuple(search.found) if understood else None
    except Exception as error:  # the application must not see it
        failed("capture.documents", error)
        return None


def _plain(value: object) -> tuple[Document, ...] | None:
    """The documents of a list of texts and flat records and nothing else: the usual case, which needs no search."""
    kind = type(value)
    if kind is not list and kind is not tuple:
        return None
    items = cast("list[object]", value)
    if len(items) > MAX_DOCUMENTS:
        return None
    for item in items:
        if type(item) is not str:
            break
    else:
        return tuple(map(document, cast("list[str]", items)))
    if kind is tuple:  # a tuple with anything but texts may be a pair
        return None
    found = flat_passages(items)
    return None if found is None else tuple(found)


def mark_duplicates(found: tuple[Document, ...]) -> tuple[Document, ...]:
    """*found* with `duplicate` set where an earlier text is the same after whitespace folding; for the background."""
    seen: set[str] = set()
    marked: list[Document] = []
    for each in found:
        folded = " ".join(each.text.split())
        marked.append(replace(each, duplicate=True) if folded in seen else each)
        seen.add(folded)
    return tuple(marked)


class _Search:
    """Collects the documents of one value, within limits of depth, number, work and time."""

    __slots__ = (
        "cut", "found", "items", "late", "limit", "looks", "seen", "skipped", "spare", "spent", "unread",
    )  # fmt: skip

    def __init__(self, spare: int) -> None:
        self.spare = self.limit = spare
        self.found: list[Document] = []
        self.looks = 0
        self.items = 0
        """That took more than a glance."""
        self.seen = self.spent = 0.0
        """When the clock was looked at last, and what the search has taken: CPU time of the thread."""
        self.late = False
        self.cut = False
        self.skipped: str | None = None
        self.unread: str | None = None

    def whole(self, value: object) -> bool:
        """Read what a function returned; False if nothing in it was understood."""
        kind = type(value)
        if kind is list:
            return self.several(value, 0)
        value = peel(value)
        get = getter(value)
        if get is None:
            return self.item(value, 0)
        # A record that holds a list is taken for the list: a retriever rarely returns one bare passage.
        return self.wrapper(get, 0) or self.record(get, 0) or self.components(value)

    def several(self, value: object, depth: int) -> bool:
        """Read the items of a list; an empty one is understood."""
        items = items_of(value, MAX_DOCUMENTS + 1)
        if items is None or depth > MAX_DEPTH:
            return False
        understood = not items
        for item in items:
            if not self.look():
                break
            passage: Document | None
            kind = type(item)
            if kind is str:
                passage = document(cast(str, item))
            else:
                passage = scored_passage(item) if kind is tuple else flat_passage(item)
            if passage is not None:
                self.found.append(passage)
                understood = True
            elif self.item(item, depth + 1):
                understood = True
            elif self.skipped is None and not self.late:
                self.skipped, self.unread = describe(item), foreign(item)
        return understood

    def look(self) -> bool:
        """Whether there is room for another document and time for another look."""
        self.looks += 1
        if self.looks > self.limit:  # what is found makes room for more
            self.limit = self.spare + _LOOKS_EACH * len(self.found)
        if self.looks <= self.limit and len(self.found) < MAX_DOCUMENTS and not self.late:
            return True
        self.cut = True
        return False

    def look_at_the_clock(self) -> None:
        """End the search when it has taken `MAX_SECONDS` since the first look."""
        now = thread_time()
        if self.seen:
            self.spent += min(now - self.seen, _MOST_AT_A_TIME)
        self.seen = now
        self.late = self.spent > MAX_SECONDS

    def item(self, value: object, depth: int) -> bool:
        """Read one item: a record, a string, a pair with a score, or a list of its own."""
        self.items += 1
        if self.items % _ITEMS_AT_A_TIME == 1:
            self.look_at_the_clock()
        get = getter(value)
        if get is not None:
            return self.record(get, depth) or self.wrapper(get, depth)
        if (text := text_of(value)) is not None:
            self.found.append(document(text))
            return True
        if shape_of(type(value)).kind == "proxy" and depth <= MAX_DEPTH:
            return self.item(peel(value), depth + 1)
        if issubclass(type(value), tuple):
            return self.pair(value, depth)
        return self.several(value, depth)

    def record(self, get: Get, depth: int) -> bool:
        """Read one passage."""
        passage = self.passage(get, depth)
        if passage is None:
            return False
        self.found.append(passage)
        return True

    def passage(self, get: Get, depth: int) -> Document | None:
        """The passage in one record, or in the record inside it."""
        text = first_text(get, names.TEXT)
        if text is not None:
            return document(text, _id(get), _score(get))
        if depth > MAX_DEPTH:
            return None
        for name in names.INSIDE:
            inside = get(name)
            if inside is not None and self.look() and (inner := self.inner(inside, name, depth)) is not None:
                score = _score(get)
                return document(inner.text, inner.id or _id(get), inner.score if score is None else score)
        return None

    def inner(self, value: object, name: str, depth: int) -> Document | None:
        """The passage in a field of a record: a record again, or the parts of a text."""
        if name == "content" and (text := parts_text(value, "\n")) is not None:
            return document(text)
        get = getter(value)
        return None if get is None else self.passage(get, depth + 1)

    def pair(self, value: object, depth: int) -> bool:
        """Read a tuple: (document, score) in either order, lists beside other things, or simply several documents."""
        items = items_of(value, MAX_DOCUMENTS + 1) or []
        lists = [item for item in items if is_list(item)]
        if lists and depth == 0:
            return self.beside(lists)
        if len(items) == 2:
            first, second = number_of(items[0]), number_of(items[1])
            if (first is None) != (second is None):
                return self.scored(items[0] if first is None else items[1], second if first is None else first, depth)
        return self.several(value, depth)

    def scored(self, value: object, score: float | None, depth: int) -> bool:
        """Read the document of a pair with its score."""
        if depth > MAX_DEPTH or not self.look():
            return False
        start = len(self.found)
        passage = flat_passage(value)
        if passage is not None:
            self.found.append(passage)
        elif not self.item(value, depth + 1):
            return False
        if len(self.found) == start + 1:
            self.found[start] = document(self.found[start].text, self.found[start].id, score)
        return True

    def beside(self, lists: list[list[object]]) -> bool:
        """Read (documents, scores), (query, documents) ...: only the lists hold documents."""
        understood = False
        for items in lists:
            if items and number_of(items[0]) is not None:
                self.attach(None, items, 0)
            else:
                understood = self.several(items, 0) or understood
        return understood

    def wrapper(self, get: Get, depth: int) -> bool:
        """Read a record that holds documents under a well-known name, with ids and scores in lists beside them."""
        for name in names.SEVERAL:
            inside = get(name)
            if inside is None or depth > MAX_DEPTH or not self.look():
                continue
            start = len(self.found)
            if self.inside(inside, name, depth):
                self.attach(_first_list(get, names.IDS), _first_list(get, names.SCORES), start)
                return True
        return False

    def inside(self, value: object, name: str, depth: int) -> bool:
        """Read what stands under a name for several documents."""
        if (text := text_of(value)) is not None:
            if name in names.JOINED:
                self.found.append(document(text))
            return name in names.JOINED
        items = items_of(value, 1)
        if items is None:
            get = getter(value)
            return get is not None and (self.wrapper(get, depth + 1) or self.record(get, depth + 1))
        if items and name in names.REFERENCES and text_of(items[0]) is not None:
            return False
        return self.several(value, depth + 1)

    def attach(self, ids: list[object] | None, scores: list[object] | None, start: int) -> None:
        """Give the documents found since *start* the ids and scores of lists as long as they are many."""
        many = len(self.found) - start
        for offset in range(many):
            passage = self.found[start + offset]
            id_ = label_of(ids[offset]) if ids and len(ids) == many else None
            score = number_of(scores[offset]) if scores and len(scores) == many else None
            if id_ is not None or score is not None:
                self.found[start + offset] = document(
                    passage.text, id_ or passage.id, passage.score if score is None else score
                )

    def components(self, value: object) -> bool:
        """Read the results of a pipeline, component by component: the last one that has documents."""
        understood = False
        for component in values_of(value, _MAX_COMPONENTS):
            get = getter(component) if shape_of(type(component)).kind == "dict" else None
            if get is None or get("documents") is None:
                continue
            before, self.found = self.found, []
            if self.several(get("documents"), 1):
                understood = True
            else:
                self.found = before
        return understood

    def report(self) -> None:
        """Say what was left out."""
        if self.cut and self.found:
            warn(
                "capture.documents.cut",
                "more documents than ragtrace reads at a time (%d, or what takes %g ms): %d were kept, the rest of them"
                " goes unjudged; return fewer, or pick them with documents=",
                MAX_DOCUMENTS,
                MAX_SECONDS * 1e3,
                len(self.found),
            )
        if self.unread is not None and self.found:
            warn_unread(self.unread)
        if self.skipped is not None and self.found:
            warn(
                "capture.documents.skipped",
                "ragtrace skipped documents it cannot read (the first: %s); say where their text is with documents=",
                self.skipped,
            )


def _id(get: Get) -> str | None:
    metadata = _metadata(get)
    return (
        first_label(get, names.ID)
        or first_label(metadata, names.METADATA_ID)
        or first_label(metadata, names.NAME)
        or first_label(get, names.NAME)
    )


def _score(get: Get) -> float | None:
    score = first_number(get, names.SCORE)
    return first_number(_metadata(get), names.METADATA_SCORE) if score is None else score


def _metadata(get: Get) -> Get:
    for name in names.METADATA:
        metadata = get(name)
        kind = type(metadata)
        if kind is dict:
            return getter(metadata) or _nothing
    return _nothing


def _nothing(name: str) -> object:
    return None


def _first_list(get: Get, list_names: tuple[str, ...]) -> list[object] | None:
    """The first list under one of these names, taken out of a list around it (Chroma answers several queries)."""
    for name in list_names:
        items = items_of(get(name), MAX_DOCUMENTS)
        if items:
            inner = items_of(items[0], MAX_DOCUMENTS)
            return items if inner is None else inner
    return None
