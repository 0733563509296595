"""Questions to ask the demo's application: natural wording over what the documents really hold."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ragtrace.demo.asked import ASKED
from ragtrace.demo.corpus import summary
from ragtrace.demo.passages import Entry, Passage
from ragtrace.demo.search import STOP_WORDS
from ragtrace.demo.sentences import finished, is_imperative, sentences

_KNOWN_MODULES = frozenset(
    "abc argparse array ast asyncio base64 bisect calendar collections concurrent configparser contextlib copy"
    " csv dataclasses datetime decimal difflib email enum fractions functools getpass glob gzip hashlib heapq html"
    " http imaplib inspect io ipaddress itertools json logging mailbox math mimetypes multiprocessing operator os"
    " pathlib pickle platform pprint queue random re sched secrets select shlex shutil smtplib socket socketserver"
    " sqlite3 ssl statistics string struct subprocess sys tarfile tempfile textwrap threading time timeit tokenize"
    " traceback tracemalloc types typing unittest urllib uuid warnings weakref xml zipfile zlib str list dict set"
    " bytes int float".split()
)
"""What people ask about; the other modules are in the documents all the same."""

_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")
_SIMPLE_DEFAULT = re.compile(r"""^(?:-?\d+(?:\.\d+)?|True|False|None|'[^']{1,20}'|"[^"]{1,20}")$""")
_FEWEST_DOC_CHARS = 40
_LONGEST_DEED_CHARS = 90
_HEADING_FORMS = (
    "What does the documentation say about {}?",
    "How does {} work?",
    "What should I know about {}?",
    "Can you explain {}?",
)
_TERM_FORMS = ("What is said about {}?", "Where does {} come in?", "What is {} used for?")
_CAPITALISED = re.compile(r"\b[A-Z][a-z]{3,}(?: [A-Z][a-z]{2,})*\b")
_LONG_WORD = re.compile(r"\b[a-z]{6,}\b")

Maker = Callable[[Entry], "str | None"]


def library_questions(entries: Sequence[Entry], count: int, seed: int) -> list[str]:
    """Up to *count* distinct questions about the standard library: hand-written ones among generated ones, shuffled.

    Args:
        entries: what the documents hold; every generated question is about one of them.
        count: how many are wanted; fewer come back only if the entries do not give more.
        seed: the same seed, entries and count give the same questions in the same order.
    """
    choice = random.Random(seed)
    written = choice.sample(ASKED, min(len(ASKED), max(1, count // 4)))
    chosen = dict.fromkeys(written)
    for question in _generated(entries, choice):
        if len(chosen) >= count:
            break
        chosen.setdefault(question)
    mixed = list(chosen)[:count]
    choice.shuffle(mixed)
    return mixed


def document_questions(entries: Sequence[Entry], passages: Sequence[Passage], count: int, seed: int) -> list[str]:
    """Up to *count* distinct questions about the user's own documents, from their headings and most telling terms."""
    choice = random.Random(seed)
    headings = [heading for entry in entries if 3 <= len(heading := entry.name.strip(" :.#*`")) <= 80]
    terms = _key_terms(passages)
    made = [form.format(heading) for form in _HEADING_FORMS for heading in headings]
    made += [form.format(term) for form in _TERM_FORMS for term in terms]
    distinct = list(dict.fromkeys(made))
    choice.shuffle(distinct)
    return distinct[:count]


def _generated(entries: Sequence[Entry], choice: random.Random) -> Iterator[str]:
    """One question of each form in turn, each about a random entry that allows it, until all are spent."""
    known = [entry for entry in entries if entry.name.split(".")[0] in _KNOWN_MODULES and _is_askable(entry)]
    choice.shuffle(known)
    queues = [(maker, iter(known)) for maker in _MAKERS]
    spent: set[str] = set()
    while queues:
        for maker, queue in list(queues):
            question = _next_question(maker, queue, spent)
            if question is None:
                queues.remove((maker, queue))
            else:
                yield question


def _next_question(maker: Maker, queue: Iterator[Entry], spent: set[str]) -> str | None:
    """The next question *maker* can make; an entry is asked about once."""
    for entry in queue:
        question = None if entry.name in spent else maker(entry)
        if question:
            spent.add(entry.name)
            return question
    return None


def _is_askable(entry: Entry) -> bool:
    return len(entry.doc) >= _FEWEST_DOC_CHARS and next(sentences(entry.doc), None) is not None


def _what(entry: Entry) -> str:
    return f"What does {entry.name} do?" if entry.kind != "module" else f"What is the {entry.name} module for?"


def _purpose(entry: Entry) -> str:
    return f"What is {entry.name} for?"


def _brief(entry: Entry) -> str:
    return f"Explain {entry.name} in a few words, please."


def _when(entry: Entry) -> str | None:
    return f"When would I use {entry.name}?" if entry.kind in ("class", "function") else None


def _returns(entry: Entry) -> str | None:
    return f"What does {entry.name} return?" if re.search(r"\breturns?\b", entry.doc, re.IGNORECASE) else None


def _raises(entry: Entry) -> str | None:
    return f"Which exception does {entry.name} raise?" if "raise" in entry.doc and _ERROR.search(entry.doc) else None


def _raises_when(entry: Entry) -> str | None:
    error = _ERROR.search(entry.doc)
    return f"When does {entry.name} raise {error.group()}?" if error and "raise" in entry.doc else None


def _default(entry: Entry) -> str | None:
    for parameter in entry.parameters:
        if parameter.default and _SIMPLE_DEFAULT.match(parameter.default) and not parameter.name.startswith("_"):
            return f"What is the default of {parameter.name} in {entry.name}?"
    return None


def _parameter(entry: Entry) -> str | None:
    for parameter in reversed(entry.parameters):
        if len(parameter.name) > 3 and re.search(rf"\b{re.escape(parameter.name)}\b", entry.doc):
            return f"What is the {parameter.name} argument of {entry.name} for?"
    return None


def _arguments(entry: Entry) -> str | None:
    return f"Which arguments does {entry.name} take?" if len(entry.parameters) >= 2 else None


def _how(entry: Entry) -> str | None:
    """ "Copy data from src to dst." becomes "How do I copy data from src to dst?"."""
    line = summary(entry.doc)
    deed = finished(next(sentences(line), ""))[:-1]
    if not is_imperative(deed) or len(deed) > _LONGEST_DEED_CHARS or "(" in deed:
        return None
    if deed.startswith("Return "):
        deed = f"get {deed.removeprefix('Return ')}"
    return f"How do I {deed[0].lower()}{deed[1:]}?" if not deed.startswith("Test ") else None


_MAKERS: tuple[Maker, ...] = (
    _what,
    _how,
    _returns,
    _parameter,
    _purpose,
    _default,
    _raises,
    _when,
    _how,
    _arguments,
    _raises_when,
    _brief,
)


def _key_terms(passages: Sequence[Passage]) -> list[str]:
    """Names and long words that two passages or more have, but not more than a quarter of them."""
    names, words = Counter[str](), Counter[str]()
    for passage in passages:
        names.update(set(_CAPITALISED.findall(passage.body)))
        words.update(set(_LONG_WORD.findall(passage.body)) - STOP_WORDS)
    most = max(2, len(passages) // 4)
    picked = [name for name, found in names.items() if 2 <= found <= most and name.lower() not in STOP_WORDS]
    picked += [f"“{word}”" for word, found in words.items() if 2 <= found <= most]
    return picked
