"""Finds documents in the results of retrieval functions and in the arguments of generation functions."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from time import thread_time
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple, cast

from ragtrace.capture import field_names
from ragtrace.capture.fields import (
    ABSENT,
    MAX_DEPTH,
    MAX_LABEL_CHARS,
    MAX_RECORDS,
    Get,
    SearchBudget,
    describe,
    entries_of,
    first,
    first_item,
    getter,
    is_known,
    is_list,
    items_of,
    label_of,
    module_of,
    number_of,
    parts_text,
    plain_fields,
    shape_of,
    static_attribute,
    text_of,
    type_name_of,
    unreadable_class,
    unwrap_proxies,
    values_of,
    warn_unread,
)
from ragtrace.core.types import Document, DocumentsInPart
from ragtrace.system.faults import faults

MAX_DOCUMENTS: Final = 1_000
MAX_SECONDS = 0.004
"""CPU time in seconds that one `_Search` for documents may take, as the application's request waits for the search."""
_RECORDS_PER_DOCUMENT: Final = 4
"""Number of records (list items, nested records) that each document found allows to search in addition."""
_MAX_COMPONENTS: Final = 20
_MAX_KEYS: Final = 32
_DEEPEST: Final = 3 * MAX_DEPTH
"""Depth of a passage in a search engine's inner hits, and of the longest chain of fields that are searched."""
_FRAMES: Final[Mapping[tuple[str, str], Callable[[Any], Any]]] = MappingProxyType(
    {
        ("pandas", "DataFrame"): lambda frame: frame.head(MAX_DOCUMENTS + 1).to_dict("records"),
        ("pandas", "Series"): lambda column: column.head(MAX_DOCUMENTS + 1).tolist(),
        ("polars", "DataFrame"): lambda frame: (
            frame.head(MAX_DOCUMENTS + 1).select(_without_vectors(frame.schema.items())).to_dicts()
        ),
        ("pyarrow", "Table"): lambda table: (
            table.slice(0, MAX_DOCUMENTS + 1)
            .select(_without_vectors((field.name, field.type) for field in table.schema))
            .to_pylist()
        ),
    }
)
"""Readers of the rows of tables in memory, by library and class. Vectors are left out: to convert those of a thousand
rows to numbers of Python's takes 60 ms, for which the application would wait."""
_VECTOR: Final = re.compile(r"(?:fixed_size_|large_)?(?:list|array)\W.*(?:float|double|int\d)")
"""Type of a column with lists of numbers, as PyArrow and Polars spell it, in small letters."""
_ID: Final = re.compile(r"(?=\S*[\d/.:])\S{1,200}")
"""What may name a text, and be no field: a word with a digit, an address or file name."""

_MADE: Final = re.compile(r"""[{\[]\s*(?:[\]}"'{\[]|-?[\d.]+\s*[,\]])""")
"""Beginning of JSON, or of a vector."""
_LEAST_TIME: Final = 1e9
"""Seconds since the epoch have passed this number, which no score has."""

_new: Any = object.__new__
_set_text, _set_id, _set_score, _set_duplicate, _set_cut = (
    vars(Document)[name].__set__ for name in ("text", "id", "score", "duplicate", "cut_chars")
)


def find_documents(
    value: object, budget: SearchBudget | None = None, *, query: str | None = None
) -> tuple[Document, ...] | None:
    """Return the documents found in *value*, in the order given and with duplicates. Never raises.

    Args:
        value: strings; records (dicts, objects) with a text field; LangChain, LlamaIndex, Haystack and OpenAI results;
            pairs with a score; lists of any of them; dicts around such a list. Iterators are left alone.
        budget: records that may still be searched, where *value* is part of a larger one.
        query: what was searched for, if that is known: it tells a query beside its hits from a passage beside its tags.

    Returns:
        None if *value* cannot be understood (None itself included), () if it is understood and empty. At most
        `MAX_DOCUMENTS`, or what takes `MAX_SECONDS`: if there are more, `DocumentsInPart`. What is cut off or skipped
        is counted and logged once.
    """
    try:
        if type(value) is str:
            return (document(value),)
        if (simple := _simple_documents(value)) is not None:
            return simple
        search = _Search(MAX_RECORDS if budget is None else budget.left, query)
        understood = search.read_result(value)
        if budget is not None:
            budget.left -= max(0, search.searched - _RECORDS_PER_DOCUMENT * len(search.found))
        search.warn_of_missed()
        if not understood:
            return None
        return cut_documents(search.found) if search.found and search.is_cut else tuple(search.found)
    except Exception as error:  # an error of the capture must not reach the application
        faults.record("capture.documents", error)
        return None


def cut_documents(kept: Sequence[Document]) -> DocumentsInPart:
    """Return the documents *kept* of a retrieval that returned more than ragtrace reads, and log that once."""
    faults.warn_once(
        "capture.documents.cut",
        "a retrieval returned more documents than ragtrace reads (limit: %d documents or %g ms): %d were kept, "
        "the others are not judged; return fewer, or choose them with documents=",
        MAX_DOCUMENTS,
        MAX_SECONDS * 1e3,
        len(kept),
    )
    return DocumentsInPart(kept)


def add_documents(so_far: tuple[Document, ...] | None, more: tuple[Document, ...]) -> tuple[Document, ...]:
    """Return the documents of a stream *so_far* and *more* of them.

    Those beyond `MAX_DOCUMENTS` are left out, and each is counted; the result is then `DocumentsInPart`.
    """
    documents = (so_far or ()) + more
    in_part = isinstance(so_far, DocumentsInPart) or isinstance(more, DocumentsInPart)
    if len(documents) > MAX_DOCUMENTS:
        faults.warn_once(
            "capture.documents.cut",
            "a stream has more documents than ragtrace keeps: the first %d are kept, the others are not judged; every "
            "further one is counted in ragtrace.stats().faults",
            MAX_DOCUMENTS,
            count=len(documents) - MAX_DOCUMENTS,
        )
        in_part = True
    return DocumentsInPart(documents[:MAX_DOCUMENTS]) if in_part else documents


def mark_duplicates(found: tuple[Document, ...]) -> tuple[Document, ...]:
    """Return the documents *found*, with `duplicate` set on each whose text repeats an earlier document.

    Texts that differ only in whitespace count as the same.
    """
    # The first words tell most texts apart: to divide a text of a million characters into words takes 20 ms.
    starts = [tuple(each.text.split(None, 8)[:8]) for each in found]
    several = {start for start, count in Counter(starts).items() if count > 1}
    seen: set[str] = set()
    marked: list[Document] = []
    for each, start in zip(found, starts, strict=True):
        if start not in several:
            marked.append(each)
            continue
        folded = " ".join(each.text.split())
        marked.append(replace(each, duplicate=True) if folded in seen else each)
        seen.add(folded)
    return tuple(marked)


# --- Flat records, the form in which nearly all retrievers return passages, read in as few steps as possible ----------


def document(text: str, id_: str | None = None, score: float | None = None) -> Document:
    """Return a new `Document` with the given text, id and score."""
    # The __init__ of a frozen dataclass takes twice as long, and `document` runs for each passage on the request path.
    made: Document = _new(Document)
    _set_text(made, text)
    _set_id(made, id_)
    _set_score(made, score)
    _set_duplicate(made, False)
    _set_cut(made, 0)
    return made


def _simple_documents(value: object) -> tuple[Document, ...] | None:
    """Return the documents in a simple list: of texts, dicts with a text, or (document, score) pairs.

    None for any other value.
    """
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
    if kind is tuple:  # a tuple may be a (document, score) pair, unless it has only texts
        return None
    found: list[Document] = []
    has_pairs = False
    for item in items:
        kind = type(item)
        passage = _simple_passage(item) if kind is str or kind is tuple else _flat_record(item)
        if passage is None:
            return None
        found.append(passage)
        has_pairs = has_pairs or kind is tuple
    return tuple(_without_distances(found)) if has_pairs else tuple(found)


def _without_distances(found: list[Document]) -> list[Document]:
    """Return the documents of (document, number) pairs without scores, if the numbers grow: they are distances then."""
    scores = [each.score for each in found if each.score is not None]
    if all(one >= other for one, other in pairwise(scores)):
        return found
    return [document(each.text, each.id) for each in found]


def _simple_passage(item: object) -> Document | None:
    """Return the document in one list item: a text, a dict with a text field, or a (document, score) pair.

    None for any other item.
    """
    kind = type(item)
    if kind is str:
        return document(cast(str, item))
    if kind is not tuple:
        return _flat_record(item)
    pair: Any = item
    if len(pair) != 2:
        return None
    record, score = pair
    if type(score) is not float:
        score, record = pair
    if type(score) is not float or not isfinite(score):
        return None
    made = document(record) if type(record) is str else _flat_record(record)
    if made is not None:
        _set_score(made, score)
    return made


class _RecordKeys(NamedTuple):
    """Keys under which one kind of dict or object holds a document's text, ids, scores, names and metadata."""

    text: str | None
    ids: tuple[str, ...]
    scores: tuple[str, ...]
    names: tuple[str, ...]
    metadata: str | None
    others: tuple[str, ...] = ()
    """Further keys of texts where that of `text` may hold the name of what the passage is from."""


def _find_keys(keys: tuple[object, ...], is_metadata: bool) -> _RecordKeys:
    def present(wanted: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in wanted if name in keys)

    names = present(field_names.NAME)
    if is_metadata:
        return _RecordKeys(None, present(field_names.METADATA_ID), present(field_names.METADATA_SCORE), names, None)
    text = () if "status_code" in keys else present(field_names.TEXT)
    metadata = present(field_names.METADATA)
    others = text[1:] if text and text[0] in field_names.NAMING else ()
    scores, ids = present(field_names.SCORE), present(field_names.ID)
    return _RecordKeys(next(iter(text), None), ids, scores, names, next(iter(metadata), None), others)


_keys_of: Any = lru_cache(maxsize=1_024)(_find_keys)
"""Cached `_find_keys`, as the records that a retriever returns usually have the same keys."""


def _flat_record(value: object) -> Document | None:
    """Return the document in a dict or object that holds the text in one of its own fields.

    None for any other value.
    """
    kind = type(value)
    fields: Any = value if kind is dict else plain_fields(value)
    if fields is None or len(fields) > _MAX_KEYS:
        return None
    for key in fields:
        if type(key) is not str:  # hashing and comparing the key would run code of its class
            return None
    text_key, ids, scores, names, metadata_key, others = _keys_of(tuple(fields), False)
    text: object = None if text_key is None else fields[text_key]
    if type(text) is not str:
        return None
    if others and text_key is not None:
        longest = max((fields[name] for name in others), key=_length)
        if _length(longest) > len(text):
            text, names = cast(str, longest), (*names, text_key)
    # Calls that would find nothing are left out, as this runs for every passage on the request path.
    id_ = _label(fields, ids) if ids else None
    score = first(fields.get, scores, number_of) if scores else None
    if metadata_key is not None and (id_ is None or score is None):
        metadata: Any = plain_fields(fields[metadata_key])
        if metadata and len(metadata) <= _MAX_KEYS:
            for key in metadata:
                if type(key) is not str:
                    return None
            _, ids, scores, sources, _, _ = _keys_of(tuple(metadata), True)
            if id_ is None:
                id_ = _label(metadata, ids) if ids else None
                id_ = _label(metadata, sources) if id_ is None and sources else id_
            if score is None and scores:
                score = first(metadata.get, scores, number_of)
    if id_ is None and names:
        id_ = _label(fields, names)
    return document(text, id_, score)


def _length(value: object) -> int:
    return len(value) if type(value) is str else 0


def _label(fields: Mapping[str, object], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        found = fields[key]
        if type(found) is str and 0 < len(found) <= MAX_LABEL_CHARS:
            return found
        if found is not None and (label := label_of(found)) is not None:
            return label
    return None


# --- Anything else ----------------------------------------------------------------------------------------------------


class _Search:
    """Bounded search for documents in the value that a retrieval function returned.

    The search is limited in depth, number of documents, searched records and CPU time.

    Args:
        spare: number of records that may be searched without finding a document.
        query: what was searched for; None: it is not known.
    """

    __slots__ = (
        "clock_read", "found", "is_cut", "is_late", "items", "limit", "query", "searched", "skipped", "spare", "spent",
        "unread",
    )  # fmt: skip

    def __init__(self, spare: int, query: str | None = None) -> None:
        self.query = (query or "").strip() or None
        self.spare = self.limit = spare
        """Most records that may be searched: `spare`, and `_RECORDS_PER_DOCUMENT` for each found document."""
        self.found: list[Document] = []
        self.searched = 0
        """Number of records searched so far."""
        self.items = 0
        """Number of items read so far by `_read_item`, which reads the clock for some of the items."""
        self.clock_read = self.spent = 0.0
        """CPU time of the thread at the last reading of the clock, and of the search so far, both in seconds."""
        self.is_late = False
        """Whether the search has taken more than `MAX_SECONDS`."""
        self.is_cut = False
        """Whether documents may be missing because a limit of the search was reached."""
        self.skipped: str | None = None
        """Type of the first list item that held no document; None: all held one."""
        self.unread: str | None = None
        """Class of the `skipped` item, if reading that item would have run code of the application; else None."""

    def read_result(self, value: object) -> bool:
        """Search for documents in the return *value* of a function. Return False if its form is unknown."""
        kind = type(value)
        if kind is list:
            return self._read_list(value, 0)
        value = unwrap_proxies(value)
        rows = rows_of_frame(value)
        get = getter(value) if rows is None else None
        if get is None:
            return self._read_item(value, 0) if rows is None else self._read_list(rows, 0)
        if get("isError") is True or get("is_error") is True:  # of a tool of MCP or Anthropic
            return False
        content = items_of(get("content"), MAX_DOCUMENTS + 1)
        if content and get("role") is None and _id(get) is None and _score(get) is None:
            return self._read_list(content, 0)  # of such a tool, which gives each passage as a part of its own
        # The list is looked for first, as a retriever rarely returns one bare passage that holds a list besides.
        understood = self._read_wrapper(get, 0) or self._read_record(get, 0) or self._read_components(value)
        return understood or self._read_by_id(value) or self._read_by_query(value)

    def _read_list(self, value: object, depth: int) -> bool:
        """Search for documents in the items of a list. Return False if no item holds a document."""
        items = items_of(value, MAX_DOCUMENTS + 1)
        if items is None or depth > _DEEPEST:
            return False
        if items and shape_of(type(items[0])).kind in ("tuple", "sequence"):
            understood_rows = self._read_rows(items, depth)
            if understood_rows is not None:
                return understood_rows
        elif items and all(map(_is_text_beside_list, items)):  # pairs of a query and its hits in JSON
            pairs = list(zip(*(items_of(item, 2) or () for item in items), strict=True))
            understood_pairs = self._read_hits(pairs, pairs[1], depth)
            if understood_pairs is not None:
                return understood_pairs
        understood, start = not items, len(self.found)
        for item in items:
            if not self._may_search():
                break
            passage = _simple_passage(item)
            if passage is not None:
                self.found.append(passage)
                understood = True
            elif self._read_item(item, depth + 1):
                understood = True
            elif self.skipped is None and not self.is_late:
                self.skipped, self.unread = describe(item), unreadable_class(item)
        if items and issubclass(type(items[0]), tuple) and start < len(self.found):
            self.found[start:] = _without_distances(self.found[start:])
        return understood

    def _may_search(self) -> bool:
        """Count one more dict or object as searched, and return False if a limit of the search is reached.

        The limits are those of documents, of records and of time.
        """
        self.searched += 1
        if self.searched > self.limit:  # every document found since the last update raises the limit
            self.limit = self.spare + _RECORDS_PER_DOCUMENT * len(self.found)
        if self.searched <= self.limit and len(self.found) < MAX_DOCUMENTS and not self.is_late:
            return True
        self.is_cut = True
        return False

    def _read_item(self, value: object, depth: int) -> bool:
        """Search for documents in a list item: a dict or object, a string, a (document, score) pair, or a list."""
        self.items += 1
        # Number of items between two readings of the clock, as one reading takes as long as an item.
        if self.items % 16 == 1:
            now = thread_time()
            # Largest number of seconds that count as work between two readings of the clock. If more have passed, the
            # thread was probably interrupted, and no document is left out because of that.
            self.spent += min(now - self.clock_read, 0.001) if self.clock_read else 0.0
            self.clock_read, self.is_late = now, self.spent > MAX_SECONDS
        get = getter(value)
        if get is not None:
            return self._read_record(get, depth) or self._read_wrapper(get, depth)
        if (text := text_of(value)) is not None:
            self.found.append(document(text))
            return True
        if shape_of(type(value)).kind == "proxy" and depth <= _DEEPEST:
            return self._read_item(unwrap_proxies(value), depth + 1)
        return self._read_tuple(value, depth) if issubclass(type(value), tuple) else self._read_list(value, depth)

    def _read_record(self, get: Get, depth: int) -> bool:
        """Add the document in a dict or object to the documents found. Return False if there is none."""
        passage = self._passage(get, depth)
        if passage is None:
            return False
        self.found.append(passage)
        return True

    def _passage(self, get: Get, depth: int) -> Document | None:
        """Return the document whose text is in a dict or object, or in a dict or object nested inside."""
        for index, key in enumerate(field_names.TEXT):
            if (text := text_of(get(key))) is None:
                continue
            name = None
            if key in field_names.NAMING:  # what the passage is from, if there is a longer text
                longest = max((text_of(get(other)) or "" for other in field_names.TEXT[index + 1 :]), key=len)
                if len(longest) > len(text):
                    text, name = longest, label_of(text)
            return document(text, _id(get) or name, _score(get))
        if depth > _DEEPEST:
            return None
        for name in field_names.INSIDE:
            value = get(name)
            if value is None or not self._may_search():
                continue
            inside = getter(value)
            if name == "highlight" and inside is not None:  # of Elasticsearch: fragments of each field
                value = next((found for field in field_names.TEXT if (found := inside(field)) is not None), None)
            if name in ("content", "highlight") and (text := parts_text(value, "\n")) is not None:
                inner: Document | None = document(text)
            else:
                inner = None if inside is None else self._passage(inside, depth + 1)
            if inner is not None:
                score = _score(get)
                return document(inner.text, inner.id or _id(get), inner.score if score is None else score)
        return None

    def _read_tuple(self, value: object, depth: int) -> bool:
        """Search for documents in a tuple: a (document, score) pair, one or more lists, or just documents.

        A pair has the document and its score in either order.
        """
        items = items_of(value, MAX_DOCUMENTS + 1) or []
        lists = [item for item in items if is_list(item)]
        if lists and depth == 0:  # of (documents, scores) or (query, documents), only the lists hold documents
            understood = False
            is_plain = all(_are_ids(inner) or (inner and number_of(inner[0]) is not None) for inner in lists)
            for inner in lists if is_plain else sorted(lists, key=_are_ids):
                if inner and number_of(inner[0]) is not None:
                    listed = [number_of(each) or 0.0 for each in inner]
                    if all(one >= other for one, other in pairwise(listed)):  # growing numbers are distances
                        self._attach(None, inner, 0)
                elif not is_plain and _are_ids(inner) and len(inner) == len(self.found):
                    self._attach(inner, None, 0)
                else:
                    understood = self._read_list(inner, 0) or understood
            return understood
        numbers = [number_of(item) for item in items[:2]] if len(items) == 2 else []
        if numbers.count(None) == 1:
            (score,) = (number for number in numbers if number is not None)
            return self._read_scored(items[numbers.index(None)], score, depth)
        if len(items) > 2 and any(number_of(item) is not None for item in items):
            understood_row = self._read_rows([value], depth)
            if understood_row is not None:
                return understood_row
        return self._read_list(value, depth)

    def _read_hits(self, columns: list[tuple[object, ...]], lists: tuple[object, ...], depth: int) -> bool | None:
        """Add the documents in a column of *lists* if they are the hits of queries in a column beside it.

        Returns:
            None if they are tags, vectors or parts of the passages beside them; False if nobody can tell.
        """
        start, skipped = len(self.found), (self.skipped, self.unread)
        for value in lists:
            items = items_of(value, MAX_DOCUMENTS + 1)
            if items and (number_of(items[0]) is not None or not self._read_list(value, depth + 1)):
                verdict = None
                break
        else:
            found = self.found[start:]
            verdict = self._are_hits(columns, lists, found) if found else self._has_no_hits(columns, lists)
        if not verdict:
            del self.found[start:]
            self.skipped, self.unread = skipped
        return verdict

    def _is_query(self, value: object) -> bool:
        text = None if self.query is None else text_of(value)
        return text is not None and text.strip() == self.query

    def _are_hits(
        self, columns: list[tuple[object, ...]], lists: tuple[object, ...], found: list[Document]
    ) -> bool | None:
        """Return whether the documents *found* in *lists* are hits: beside the query, or with more text than is beside.

        Tags are strings, and may be longer than half of a short text; entities have neither id nor score.
        """
        beside = [column for column in columns if column is not lists]
        has_words = not all(_is_token(each.text) for each in found)
        if any(self._is_query(value) for column in beside for value in column):
            return has_words
        with_hits = [at for at, value in enumerate(lists) if items_of(value, 1)]
        asked = max(sum(len(text_of(column[at]) or "") for at in with_hits) for column in beside)
        said = sum(len(each.text) for each in found)
        is_text = any(text_of(first_item(value)) is not None for value in lists)
        if said > (2 if is_text else 1) * asked:
            return True
        if 2 * said < asked or not has_words:
            return None
        is_named = any(each.id is not None or each.score is not None for each in found)
        return True if is_named and not is_text else False if len(columns) == 2 else None

    def _has_no_hits(self, columns: list[tuple[object, ...]], lists: tuple[object, ...]) -> bool | None:
        """Return whether *lists*, which are empty or null, are those of queries without a hit.

        Of pairs of a text and an empty list nobody can tell, unless a text is the query: passages without tags look so.
        """
        beside = [column for column in columns if column is not lists]
        is_pair, is_asked = len(columns) == 2, any(self._is_query(value) for column in beside for value in column)
        if all(value is None for value in lists):  # a column of a table, unless it stands beside the query
            return False if is_pair and is_asked else None
        if is_asked:
            return True
        is_query = is_pair and all(text_of(value) is not None for value in beside[0])
        return False if is_query else None

    def _read_rows(self, items: list[object], depth: int) -> bool | None:
        """Add the documents in rows of a database. Return False if none is understood, and None if *items* are no rows.

        Rows are tuples of one length. Of columns without names, that with by far the longest texts has the text.
        """
        rows = [items_of(item, _MAX_KEYS) or [] for item in items]
        columns = list(zip(*rows, strict=False))
        if len(columns) < 2 or {len(row) for row in rows} != {len(columns)}:
            return None
        cls = type(items[0])
        if is_known(cls) and static_attribute(cls, "_asdict") is not ABSENT:  # of SQLAlchemy, with names of columns
            named: list[Any] = [row for row in items if type(row) is cls]
            if self._read_list([row._asdict() for row in named], depth):
                return True
        for lists in columns:
            if all(value is None or _is_several(value) for value in lists):
                understood = self._read_hits(columns, lists, depth)
                if understood is not None:
                    return understood
        numbers = [column for column in columns if all(number_of(value) is not None for value in column)]
        texts = [found for column in columns if any(found := [text_of(value) or "" for value in column])]
        # The score of (document, score) is read elsewhere: different whole numbers before the texts are ids.
        is_key = all(type(value) is int for value in columns[0]) and _are_ids(columns[0])
        if not texts or (len(columns) == 2 and numbers and not is_key):
            return None
        objects = [value for row in rows for value in row if getter(value) is not None]
        if any(self._passage(get, depth + 1) for value in objects[:_MAX_KEYS] if (get := getter(value)) is not None):
            return self._read_list(objects, depth + 1)
        texts.sort(key=lambda column: sum(map(len, column)), reverse=True)
        prose = [column for column in texts if not all(map(_is_token, column))] or texts
        text, others = prose[0], prose[1:]
        if others and sum(map(len, text)) < 2 * sum(map(len, others[0])):
            return False
        # An application's objects among the values must not be compared: that runs their code.
        beside = [each for each in columns if [text_of(value) or "" for value in each] != text]
        ids = next(filter(_are_ids, beside), ())
        real = [list(map(number_of, each)) for each in numbers if not any(type(value) is int for value in each)]
        # Growing numbers are distances. Of one row, and of equal numbers, nothing shows which they are. Seconds since
        # the epoch fall where the newest row is the first.
        real = [each for each in real if all(abs(value or 0.0) < _LEAST_TIME for value in each)]
        falling = [each for each in real if each == sorted(each, key=lambda value: -(value or 0.0))]
        scores = [each for each in falling if each[0] != each[-1]]
        start = len(self.found)
        self.found += map(document, text)
        self._attach(list(ids), list[object](scores[0]) if len(scores) == 1 else None, start)
        self.found[start:] = [each for each in self.found[start:] if each.text]
        is_wide = len(items_of(items[0], _MAX_KEYS + 1) or ()) > _MAX_KEYS  # the texts may be in a further column
        self.is_cut = self.is_cut or is_wide or len(self.found) > MAX_DOCUMENTS
        del self.found[MAX_DOCUMENTS:]
        return True

    def _read_by_id(self, value: object) -> bool:
        """Add the documents of a dict whose keys are their ids. Return False if the keys may be names of fields."""
        found = [(key, _simple_passage(inner)) for key, inner in entries_of(value, MAX_DOCUMENTS + 1)]
        for key, passage in found:
            if passage is None or not (type(key) is int or _ID.fullmatch(text_of(key) or "")):
                return False
        self.found += [document(each.text, each.id or label_of(key), each.score) for key, each in found if each]
        self.is_cut = self.is_cut or len(self.found) > MAX_DOCUMENTS
        del self.found[MAX_DOCUMENTS:]
        return bool(found)

    def _read_by_query(self, value: object) -> bool:
        """Add the documents of a dict whose keys are queries, with lists of their hits.

        One of the keys is the query, or all of them have several words and what they hold are records: lists of texts
        may be columns of a table.
        """
        entries = entries_of(value, _MAX_COMPONENTS + 1)
        if not entries or any(text_of(key) is None or not _is_several(inner) for key, inner in entries):
            return False
        hits = [each for _, inner in entries for each in items_of(inner, 1) or ()]
        is_named = all(len((text_of(key) or "").split(None, 1)) > 1 for key, _ in entries)
        if not any(self._is_query(key) for key, _ in entries) and not (is_named and None not in map(getter, hits)):
            return False
        start = len(self.found)
        for _, inner in entries[:_MAX_COMPONENTS]:
            if not self._read_list(inner, 1):
                del self.found[start:]
                return False
        self.is_cut = self.is_cut or len(entries) > _MAX_COMPONENTS
        return True

    def _read_scored(self, value: object, score: float, depth: int) -> bool:
        """Add the document of a (document, score) pair with its score. Return False if there is none."""
        if depth > _DEEPEST or not self._may_search():
            return False
        start = len(self.found)
        passage = _flat_record(value)
        if passage is not None:
            self.found.append(passage)
        elif not self._read_item(value, depth + 1):
            return False
        if len(self.found) == start + 1:
            self.found[start] = document(self.found[start].text, self.found[start].id, score)
        return True

    def _read_wrapper(self, get: Get, depth: int) -> bool:
        """Search for documents in a dict or object that holds a list of them in a well-known field.

        The ids and scores of the documents may be in lists beside that list.
        """
        is_empty = False
        for name in field_names.SEVERAL:
            inside = get(name)
            if name == "inner_hits":  # of Elasticsearch: a search result for each name
                named = values_of(inside, _MAX_COMPONENTS + 1)
                self.is_cut = self.is_cut or len(named) > _MAX_COMPONENTS
                inside = named[:_MAX_COMPONENTS] or None
            if inside is None or depth > _DEEPEST or not self._may_search():
                continue
            start = len(self.found)
            if self._read_wrapped(inside, name, depth):
                if len(self.found) == start:  # an empty list: another field may have the documents
                    is_empty = True
                    continue
                self._attach_lists(get, inside, start)
                return True
        return is_empty

    def _read_wrapped(self, value: object, name: str, depth: int) -> bool:
        """Search for documents in *value*, a field of a dict or object that holds several documents."""
        if (text := text_of(value)) is not None:
            if name in field_names.JOINED:
                self.found.append(document(text))
            return name in field_names.JOINED
        items = items_of(value, 1)
        if items is None:
            get = getter(value)
            return get is not None and (self._read_wrapper(get, depth + 1) or self._read_record(get, depth + 1))
        if items and name in field_names.REFERENCES and text_of(items[0]) is not None:
            return False
        return self._read_list(value, depth + 1)

    def _attach_lists(self, get: Get, inside: object, start: int) -> None:
        """Add the ids and scores in fields of a result, whose documents are those from index *start* on.

        They are in the order of the entries of *inside*, of which some may have no text.
        """
        entries = _flat(inside)
        with_text = [at for at, entry in enumerate(entries) if entry is not None]
        columns: list[list[object] | None] = []
        for names in (field_names.IDS, field_names.SCORES):
            column = next((found for name in names if (found := _flat(get(name)))), None)
            if column is not None and len(column) == len(entries):
                column = [column[at] for at in with_text]
            columns.append(column)
        self._attach(columns[0], columns[1], start)

    def _attach(self, ids: list[object] | None, scores: list[object] | None, start: int) -> None:
        """Add the ids and scores from a result's separate lists to the documents from index *start* on.

        A list is used if it has one value for each of the documents.
        """
        count = len(self.found) - start
        for offset in range(count):
            passage = self.found[start + offset]
            id_ = label_of(ids[offset]) if ids and len(ids) == count else None
            score = number_of(scores[offset]) if scores and len(scores) == count else None
            if id_ is not None or score is not None:
                self.found[start + offset] = document(
                    passage.text, id_ or passage.id, passage.score if score is None else score
                )

    def _read_components(self, value: object) -> bool:
        """Search for documents in the results of a pipeline's components.

        The last component with documents counts.
        """
        understood = False
        components = values_of(value, _MAX_COMPONENTS + 1)
        for component in components[:_MAX_COMPONENTS]:
            get = getter(component) if shape_of(type(component)).kind == "dict" else None
            if get is None or get("documents") is None:
                continue
            before, self.found = self.found, []
            if self._read_list(get("documents"), 1):
                understood = True
            else:
                self.found = before
        self.is_cut = self.is_cut or (understood and len(components) > _MAX_COMPONENTS)
        return understood

    def warn_of_missed(self) -> None:
        """Log, once per process, that documents were cut off or could not be read."""
        if not self.found:
            return
        if self.unread is not None:
            warn_unread(self.unread)
        if self.skipped is not None:
            faults.warn_once(
                "capture.documents.skipped",
                "ragtrace skipped documents it cannot read (the first: %s); say where their text is with documents=",
                self.skipped,
            )


def _without_vectors(columns: Iterable[tuple[str, object]]) -> list[str]:
    """Return the names of the columns of a table, each with its type, that are no lists of numbers."""
    kinds = ((name, str(kind).lower()) for name, kind in columns)
    return [name for name, kind in kinds if not _VECTOR.match(kind)]


def rows_of_frame(value: object) -> list[object] | None:
    """Return the first rows of a table in memory, as dicts by the names of its columns; None: it is no such table."""
    cls = type(value)
    library, name = module_of(cls).partition(".")[0], type_name_of(cls)
    read, found = _FRAMES.get((library, name)), sys.modules.get(library)
    if read is None or type(found) is not ModuleType or vars(found).get(name) is not cls:
        return None
    return items_of(read(value), MAX_DOCUMENTS + 1)


def _is_token(text: str) -> bool:
    return (text.isascii() and len(text.split(None, 1)) < 2) or _MADE.match(text) is not None


def _are_ids(column: Sequence[object]) -> bool:
    """Return whether the values of *column* may be ids: all different, and whole numbers or words."""
    labels = [label_of(value) for value in column]
    return len(set(labels)) == len(labels) > 0 and all(label is not None and _is_token(label) for label in labels)


def _id(get: Get) -> str | None:
    metadata = _metadata(get)
    return (
        first(get, field_names.ID, label_of)
        or first(metadata, field_names.METADATA_ID, label_of)
        or first(metadata, field_names.NAME, label_of)
        or first(get, field_names.NAME, label_of)
    )


def _score(get: Get) -> float | None:
    score = first(get, field_names.SCORE, number_of)
    return first(_metadata(get), field_names.METADATA_SCORE, number_of) if score is None else score


def _metadata(get: Get) -> Get:
    """Return a function that looks up a field by name in the metadata dictionary of a dict or object.

    Without such a dictionary, the function finds nothing.
    """
    for name in field_names.METADATA:
        metadata = get(name)
        kind = type(metadata)
        if kind is dict and (found := getter(metadata)) is not None:
            return found
    return lambda name: None


def _is_several(value: object) -> bool:
    """Return whether *value* is a list or a tuple, and no named one."""
    return shape_of(type(value)).kind in ("list", "tuple", "sequence", "user_list")


def _is_text_beside_list(value: object) -> bool:
    items = items_of(value, 3) if is_list(value) else None
    return items is not None and len(items) == 2 and text_of(items[0]) is not None and _is_several(items[1])


def _flat(value: object) -> list[object]:
    """Return the items of a list, or those of all its lists: Chroma returns one for each query."""
    items = items_of(value, MAX_DOCUMENTS) or []
    if not items or items_of(items[0], 1) is None:
        return items
    return [each for inner in items for each in items_of(inner, MAX_DOCUMENTS) or ()][:MAX_DOCUMENTS]
