"""Query, documents and answer out of whatever a RAG application passes around.

Nothing here imports another framework: objects are recognised by their fields. All of it runs on the application's
threads, so it never iterates what can be read only once, never writes, never calls a method of an unknown object, and
never raises.
"""

from ragtrace.capture.answers import reply
from ragtrace.capture.draft import Reply
from ragtrace.capture.frozen import UNFROZEN, frozen, frozen_arguments
from ragtrace.capture.messages import prompt
from ragtrace.capture.passages import documents, mark_duplicates
from ragtrace.capture.questions import query
from ragtrace.capture.report import not_understood
from ragtrace.capture.stream import StreamText

__all__ = [
    "UNFROZEN",
    "Reply",
    "StreamText",
    "documents",
    "frozen",
    "frozen_arguments",
    "mark_duplicates",
    "not_understood",
    "prompt",
    "query",
    "reply",
]
