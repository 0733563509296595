"""The answer of a stream, gathered piece by piece while the application passes it on."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from typing import Any, Final

from ragtrace.capture.draft import Draft, Reply
from ragtrace.capture.pieces import piece_text
from ragtrace.capture.reading import type_name_of
from ragtrace.capture.report import failed

MAX_CHARS: Final = 2_000_000
_BLOCK: Final = 1_024
"""Pieces joined at once: many short strings take ten times the memory of a long one."""
_SSE_LINE: Final = re.compile(r"(?:data|event|id|retry)?:|$")
_SSE_PROBE_CHARS: Final = 2_000


class StreamText:
    """Accumulates the pieces of one stream; at most *max_chars* characters, the rest is counted.

    Understands strings, UTF-8 bytes, dicts with a text field, and the chunks of OpenAI (chat, completions, responses),
    LangChain, LlamaIndex, Haystack and Anthropic. Not thread-safe: a stream has one reader at a time.
    """

    __slots__ = (
        "_blocks", "_decoder", "_draft", "_kept", "_max_chars", "_pieces", "_understood", "cut_chars", "unknown",
    )  # fmt: skip

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._pieces: list[str] = []
        self._blocks: list[str] = []
        self._kept = 0
        self._draft = Draft()
        self._decoder: Any = None
        self._understood = False
        self.unknown: str | None = None
        """Type name of the first piece that was not understood."""
        self.cut_chars = 0
        """Characters that were not kept."""

    def add(self, piece: object) -> bool:
        """Take in one piece; True if it carried text of the answer. Never raises."""
        if type(piece) is str:
            text = piece
        else:
            try:
                text = self._text(piece)
            except Exception as error:  # the application must not see it
                failed("capture.stream", error)
                self._note(piece)
                return False
        if not text:
            return False
        room = self._max_chars - self._kept
        if len(text) > room:
            self.cut_chars += len(text) - room
            text = text[:room]
        self._kept += len(text)
        self._pieces.append(text)
        if len(self._pieces) >= _BLOCK:
            self._join()
        return True

    def reply(self) -> Reply | None:
        """What was gathered so far; None if no piece was understood, or what came was framed for transport (SSE).

        A stream that ended without a piece has the text "". Never raises.
        """
        self._join()
        gathered = "".join(self._blocks)
        if _is_framed(gathered):
            return None
        # The Responses API repeats everything in its last event, and some servers send nothing else.
        text = gathered or self._draft.text
        if text is None and not self._draft.tool_calls:
            if self.unknown is not None and not self._understood:
                return None
            text = ""
        return self._draft.reply(text, self.cut_chars)

    def _join(self) -> None:
        if self._pieces:
            self._blocks.append("".join(self._pieces))
            self._pieces.clear()

    def _text(self, piece: object) -> str:
        if type(piece) is bytes:
            return self._decoded(piece)
        text = piece_text(piece, self._draft, self._kept + self.cut_chars)
        if text is not None:
            self._understood = True
            return text
        if piece is not None:
            self._note(piece)
        return ""

    def _note(self, piece: object) -> None:
        self.unknown = self.unknown or type_name_of(type(piece))

    def _decoded(self, piece: bytes) -> str:
        if self._decoder is None:  # one for the whole stream: a character may be split over two pieces
            self._decoder = getincrementaldecoder("utf-8")("replace")
        # More than can be kept is only counted: one byte a character is close enough for that.
        room = 4 * (self._max_chars - self._kept)
        self.cut_chars += max(0, len(piece) - room)
        text: str = self._decoder.decode(piece[:room] if len(piece) > room else piece)
        return text


def _is_framed(text: str) -> bool:
    """Whether it is server-sent events: lines of `field: value`, in blocks that end with an empty line."""
    if not text.startswith(("data:", "event:", "id:", "retry:", ":")) or "\n\n" not in text.replace("\r", "")[-4:]:
        return False
    lines = text[:_SSE_PROBE_CHARS].splitlines()
    return all(_SSE_LINE.match(line) for line in lines[: max(1, len(lines) - 1)])
