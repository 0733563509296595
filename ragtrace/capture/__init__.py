"""Finds query, documents and answer in the arguments and results of an application's functions.

Nothing here imports another framework: objects are recognised by their fields. All of it runs on the application's
threads, so it never iterates what can be read only once, never writes, never calls a method of an unknown object, and
never raises.
"""

from ragtrace.capture.answer_stream import AnswerStream
from ragtrace.capture.answers import Answer, answer_in_json, find_answer, says_no_answer
from ragtrace.capture.arguments import find_query
from ragtrace.capture.documents import find_documents, mark_duplicates
from ragtrace.capture.fields import warn_not_found, warn_not_reduced, warn_unknown_stream
from ragtrace.capture.tool_results import find_tool_result, is_tool_error

__all__ = [
    "Answer",
    "AnswerStream",
    "answer_in_json",
    "find_answer",
    "find_documents",
    "find_query",
    "find_tool_result",
    "is_tool_error",
    "mark_duplicates",
    "says_no_answer",
    "warn_not_found",
    "warn_not_reduced",
    "warn_unknown_stream",
]
