"""Reader of labels in an LLM's JSON reply of any form, which never fills in a default label.

Items that the request enumerates are looked up by id: an id without exactly one valid label is unjudged, an id that is
not in the request is a defect and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar, cast

from ragtrace.judges.llm.invisible_chars import without_invisible

MOST_ENTRIES: Final = 1_000
"""Most entries of a list: a longer one is no reply about one call."""
TEXT_CHARS: Final = 500
_MOST_DEFECTS: Final = 1_000
_SHOWN_CHARS: Final = 40

L = TypeVar("L")


class LabelsById(NamedTuple):
    """Labels read from an LLM's reply, by the id of the labelled item, and the defects of the reply."""

    labels: dict[str, Any]
    defects: list[str]


class ReplyReader:
    """Reader of the labels in one JSON reply of an LLM, which also collects the defects of that reply.

    `defects` grows with each rule that the reply breaks, in words for the model.
    """

    def __init__(self, data: object) -> None:
        self.data: Mapping[str, Any] = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        self.defects: list[str] = []

    def add_defect(self, text: str) -> None:
        """Record a defect of the reply, up to a limit.

        The number of defects decides which of two replies is better.
        """
        if len(self.defects) < _MOST_DEFECTS:
            self.defects.append(text)

    def entries(self, part: str) -> list[Mapping[str, Any]] | None:
        """Return the JSON objects in the list *part* of the reply, or None if the list is missing or too long.

        An entry that is no object is a defect, and an empty object: it counts as one that cannot be used.
        """
        if not isinstance(self.data.get(part), list):
            self.add_defect(f"{part} is missing or no list")
            return None
        items: list[object] = self.data[part]
        if len(items) > MOST_ENTRIES:
            self.add_defect(f"{part} has {len(items)} items, more than {MOST_ENTRIES}")
            return None
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                self.add_defect(f"{part}[{index}] is no object")
        return [cast("dict[str, Any]", item) if isinstance(item, dict) else {} for item in items]

    def texts(self, part: str) -> list[object]:
        """Return the entries of the list *part* of the reply. If the list is missing, record a defect.

        The entries should be texts. Of a missing list there are no entries.
        """
        value: object = self.data.get(part)
        if isinstance(value, list):
            return cast("list[object]", value)
        self.add_defect(f"{part} is missing or no list")
        return []

    def labels_by_id(self, part: str, ids: Collection[str], name: str, allowed: tuple[str, ...]) -> dict[str, Any]:
        """Return one label of each item in the list *part* of the reply, by item id.

        *name* is the key of the label, and *ids* are the items that must be there. A label that is not valid is None.
        """
        found = self.labels(part, ids, {name: allowed})
        return found[name] if found else dict.fromkeys(ids)

    def labels(
        self, part: str, ids: Collection[str], allowed: Mapping[str, tuple[str, ...]]
    ) -> dict[str, dict[str, Any]] | None:
        """Return the labels of all items in the list *part* of the reply, by label name and then by item id.

        A label is None if it is missing, unknown or contradicted.

        Args:
            part: key of the list of entries with an id and labels.
            ids: ids that must be there.
            allowed: valid labels by name.

        Returns:
            None if there is no such list.
        """
        entries = self.entries(part)
        found: dict[str, dict[str, str | None]] = {name: {} for name in allowed}
        seen: set[str] = set()
        for index, entry in enumerate(entries or ()):
            key = entry.get("id")
            if not isinstance(key, str) or key not in ids:
                self.add_defect(f"{part}[{index}]: unknown id {shorten_value(key)}")
                continue
            for name, labels in found.items():
                label = self.label(entry.get(name), allowed[name], f"{part}[{index}].{name}")
                if key in seen and labels[key] != label:
                    self.add_defect(f"{part}: two different labels {name} for {key}")
                    label = None
                labels[key] = label
            seen.add(key)
        for key in ids:
            if key not in seen:
                self.add_defect(f"{part}: {key} is missing")
        if entries is None:
            return None
        return {name: {key: labels.get(key) for key in ids} for name, labels in found.items()}

    def label(self, value: object, allowed: tuple[L, ...], where: str) -> L | None:
        """Return that of the *allowed* labels which *value* is, or else record a defect at *where* and return None.

        Case and surrounding white space are ignored: where no schema is enforced, a model also writes "Supported".
        """
        if isinstance(value, str):
            folded = value.strip().casefold()
            for label in allowed:
                if folded == label:
                    return label
        self.add_defect(f"{where}: {shorten_value(value)} is not one of {', '.join(map(str, allowed))}")
        return None


def one_line(value: object) -> str:
    """Return a text from an LLM's reply as one line without invisible characters, or "" if *value* is no text."""
    return " ".join(without_invisible(value).split())[:TEXT_CHARS] if isinstance(value, str) else ""


def shorten_value(value: object) -> str:
    """Return *value*, which an LLM wrote, shortened to one line for an error message."""
    if not isinstance(value, str):
        return "nothing" if value is None else f"a {type(value).__name__}"
    return repr(without_invisible(value[:_SHOWN_CHARS]))
