"""Natural-language questions for the demo's application, about the contents of its documents."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator

from ragtrace.demo.generator import first_sentence, is_imperative, with_full_stop
from ragtrace.demo.library import Documents, Entry

WRITTEN: tuple[str, ...] = (
    "How do I copy a file and keep its metadata?",
    "How do I create a zip or tar archive of a directory?",
    "How can I list the files of a directory that match a pattern?",
    "How do I turn a Python object into JSON?",
    "How do I split a URL into its components?",
    "What is the difference between stdev and pstdev?",
    "How do I cache the results of a function?",
    "How can I wait for a coroutine with a timeout?",
    "How do I run a command and capture its output?",
    # Users also ask for things that the documents do not have; the right answer then says so.
    "How do I train a neural network on images?",
    "How do I plot a histogram with matplotlib?",
    "What is the capital of Norway?",
)
"""Questions about the standard library, as people would ask."""

_ERROR = re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b")


def library_questions(documents: Documents, count: int, seed: int) -> list[str]:
    """Return up to *count* questions about the standard library, some hand-written and the others generated.

    Args:
        documents: every generated question is about one of their entries, in the form used least so far.
        count: fewer questions come back only if the entries do not give more.
        seed: the same seed, documents and count give the same questions in the same order.
    """
    choice = random.Random(seed)
    questions = dict.fromkeys(choice.sample(WRITTEN, min(len(WRITTEN), max(1, count // 4))))
    used: Counter[str] = Counter()
    askable = [each for each in documents.entries if len(each.doc) >= 40 and first_sentence(each.doc)]
    for entry in choice.sample(askable, len(askable)):
        if len(questions) >= count:
            break
        form, question = min(_question_forms(entry), key=lambda made: used[made[0]])
        used[form] += 1
        questions.setdefault(question)
    return choice.sample(list(questions), len(questions))


def _question_forms(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield each possible question about the document *entry*, with the kind of question, such as `purpose`."""
    name, doc = entry.name, entry.doc
    yield "does", f"What does {name} do?" if entry.kind != "module" else f"What is the {name} module for?"
    yield "purpose", f"What is {name} for?"
    yield "brief", f"Explain {name} in a few words, please."
    if entry.kind in ("class", "function"):
        yield "when", f"When would I use {name}?"
    if re.search(r"\breturns?\b", doc, re.IGNORECASE):
        yield "returns", f"What does {name} return?"
    error = _ERROR.search(doc)
    if error and "raise" in doc:
        yield "raises", f"Which exception does {name} raise?"
        yield "raises_when", f"When does {name} raise {error.group()}?"
    for parameter in entry.parameters:
        if len(parameter) > 3 and re.search(rf"\b{re.escape(parameter)}\b", doc):
            yield "parameter", f"What is the {parameter} argument of {name} for?"
    # "Copy data from src to dst." becomes "How do I copy data from src to dst?".
    instruction = with_full_stop(first_sentence(doc.split("\n\n", 1)[0]))[:-1]
    if is_imperative(instruction) and len(instruction) <= 90 and "(" not in instruction:
        if instruction.startswith("Return "):
            instruction = f"get {instruction.removeprefix('Return ')}"
        yield "how", f"How do I {instruction[0].lower()}{instruction[1:]}?"
