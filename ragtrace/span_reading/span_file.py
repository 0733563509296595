"""File of finished spans, as the Collector's file exporter, an API or an application writes it.

Source: https://opentelemetry.io/docs/specs/otel/protocol/file-exporter/.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Iterator
from gzip import BadGzipFile, GzipFile
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

from ragtrace.span_reading.finished_span import FinishedSpan
from ragtrace.span_reading.otlp_json import OtlpJsonReader, UnreadableSpan

MOST_LINE_BYTES: Final = 128 * 2**20
"""Most bytes of one line, or of a file that is one JSON document over several lines; reading takes several times the
memory."""
_BOM: Final = b"\xef\xbb\xbf"
_GZIP: Final = b"\x1f\x8b"


class SpanFile:
    """File of finished spans, which is parsed line by line during iteration and can be iterated once.

    A line is an OTLP JSON document, a span record, or a list of these. A file that is one JSON document over several
    lines is read as a whole, up to `MOST_LINE_BYTES`. The file may be compressed by gzip.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = max(1, path.stat().st_size)
        self._read = 0
        self.reader = OtlpJsonReader()
        self.n_spans = 0
        """Number of spans read so far."""

    @property
    def share_read(self) -> float:
        """Share of the span file that has been read so far, from 0 to 1."""
        return min(1.0, self._read / self._size)

    def __iter__(self) -> Generator[FinishedSpan | UnreadableSpan, None, None]:
        for line, document in self._documents():
            for found in [document] if isinstance(document, UnreadableSpan) else self.reader.spans_in(line, document):
                self.n_spans += isinstance(found, FinishedSpan)
                yield found

    # --- file to JSON documents ---------------------------------------------------------------------------------------

    def _documents(self) -> Iterator[tuple[int, Any]]:
        """Yield the number and the JSON document of each line, or an `UnreadableSpan` for a line that is not JSON."""
        documents = self._documents_over_lines()
        if documents is not None:
            self._read = self._size
            yield from ((1, document) for document in documents)
            return
        number = 0
        try:
            with self._path.open("rb") as stored:
                file = _decompressed(stored)
                while raw := file.readline(MOST_LINE_BYTES):
                    number += 1
                    if len(raw) == MOST_LINE_BYTES and not raw.endswith(b"\n"):
                        while (more := file.readline(MOST_LINE_BYTES)) and not more.endswith(b"\n"):
                            pass
                        too_long = f"longer than {MOST_LINE_BYTES} bytes; write smaller batches"
                        document: Any = UnreadableSpan(number, too_long)
                    elif raw.strip(b" \t\r\n\0"):  # a file system that ran full leaves zeros
                        document = _parse(number, raw.removeprefix(_BOM) if number == 1 else raw)
                    else:
                        continue
                    self._read = stored.tell()
                    yield number, document
                self._read = stored.tell()
        except (EOFError, BadGzipFile, zlib.error) as error:
            yield number + 1, UnreadableSpan(number + 1, f"the gzip data is cut off or damaged here: {error}")

    def _documents_over_lines(self) -> list[Any] | None:
        """Return the JSON documents of a file if they extend over several lines, or None if it is JSON Lines."""
        try:
            with self._path.open("rb") as stored:
                file = _decompressed(stored)
                first = file.readline(MOST_LINE_BYTES).removeprefix(_BOM)
                while first.isspace():
                    first = file.readline(MOST_LINE_BYTES)
                if self._size > MOST_LINE_BYTES or not isinstance(_parse(1, first), UnreadableSpan):
                    return None
                rest = file.read(MOST_LINE_BYTES)  # the size of compressed data says little
        except (EOFError, BadGzipFile, zlib.error):
            return None
        if len(rest) == MOST_LINE_BYTES:
            return None
        try:
            text = (first + rest).decode("utf-8").rstrip()
            documents: list[Any] = []
            decoder, position = json.JSONDecoder(), 0
            while position < len(text):
                document, position = decoder.raw_decode(text, position)
                documents.append(document)
                while text[position : position + 1].isspace():
                    position += 1
        except (ValueError, RecursionError):
            return None
        return documents


def _decompressed(stored: BufferedReader) -> BufferedReader | GzipFile:
    """Return a file object with the bytes of *stored*, decompressed if they are in gzip format."""
    return GzipFile(fileobj=stored) if stored.peek(2).startswith(_GZIP) else stored


def _parse(number: int, raw: bytes) -> Any:
    """Parse the line *raw* as JSON, or return an `UnreadableSpan` if it is not JSON."""
    try:
        return json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        needed = "a file of OTLP JSON is needed, uncompressed or compressed by gzip"
        return UnreadableSpan(number, f"not UTF-8 at byte {error.start}; {needed}")
    except RecursionError:
        return UnreadableSpan(number, "nested too deeply to be read")
    except ValueError as error:
        return UnreadableSpan(number, f"not JSON: {error}")
