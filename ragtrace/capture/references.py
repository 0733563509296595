"""Tells what only names a document beside an answer, such as an address or a file's name, from a document's text."""

from __future__ import annotations

import re
from typing import Final

_UNSPACED: Final = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\u3005-\u3007\u3040-\u312f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf\ua980-\ua9df\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003134f]"
)
"""Letters of scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Japanese, Chinese and others."""
_STOPS: Final = "\u3002\uff0c\u3001\uff01\uff1f\uff1b\u104b\u0f0d\u17d4"
"""Punctuation of sentences in these scripts, which no file's name has."""
_MAX_NAME_CHARS: Final = 300
_MAX_ADDRESS_CHARS: Final = 4_000
_MAX_PARTS: Final = 100
_EXTENSIONS: Final = (
    "pdf|docx?|odt|rtf|txt|mdx?|markdown|rst|adoc|tex|html?|xhtml|xml|json[lc]?|ya?ml|toml|csv|tsv|xlsx?|ods|pptx?|odp"
    "|key|epub|eml|msg|ipynb|py|js|ts|java|go|sql|log|png|jpe?g|gif|svg|webp|tiff?|mp[34]|wav|vtt|srt|zip|parquet"
)
_EXTENSION: Final = re.compile(rf"\.(?:{_EXTENSIONS})(?![^\W_])", re.IGNORECASE)
_FILE: Final = re.compile(
    rf"[^\n\r<>|*?]*[^\W_)\]]\.(?:{_EXTENSIONS})(?:[?#:]\S*)?"
    r"(?:[\s,;:(\[]{1,3}(?:p|pp|pages?|s|seiten?|chunk|part|section|lines?)\.?[\s#]?\d{1,6}(?:[-\u2013]\d{1,6})?[)\]]?)?",
    re.IGNORECASE,
)
"""Name of a file, which may have spaces, and perhaps the place in it: `Annual report 2023.pdf, page 3`."""
_SENTENCE: Final = re.compile(r"[.!?]\s+[^\W\d_]{2}")
_ADDRESS: Final = re.compile(
    r"<?[a-z][a-z0-9+.-]{1,15}://\S+"
    r"|(?:www\.|mailto:|urn:|doi:|arxiv:|pmid:|10\.\d{4,9}/)\S+"
    r"|(?=\S*[^\W\d_])(?:[a-z]:[\\/]|~?[\\/]|\.{1,2}[\\/])\S+"
    r"|(?=\S*[^\W\d_])[\w.@+-]+(?:[\\/][\w.@+%=-]*){2,}(?:[?#]\S*)?"
    r"|(?:[a-z0-9-]+\.)+[a-z]{2,}(?:[:/?#]\S*)?",
    re.IGNORECASE | re.ASCII,
)
"""Address in the web, name of a host, or path of a file."""
_LINK: Final = re.compile(r"(?:[-*]\s)?!?\[[^\]\n]*\]\((?:https?://|/|\.)\S*\)")
_ID: Final = re.compile(r"(?=\S*[^\W\d_])(?=\S*[\d_/@])\S+")


def is_reference(text: str) -> bool:
    """Return whether *text* has no white space between words, so that it names a document, or is an address.

    A text in a script without spaces is one, unless it is an address or the name of a file.
    """
    text = text.strip()
    return is_address(text) or not (_is_unspaced(text) or _has_space(text))


def is_address(text: str) -> bool:
    """Return whether *text* is an address, a file's name or a path, or several of them, wherever it stands."""
    text = text.strip()
    words = text[: _MAX_ADDRESS_CHARS + 1].split(None, 1)
    if len(words) < 2:
        return _is_address(text)
    # Most texts are told by a search for what few of them have: this runs for every passage on the request path.
    if len(text) <= _MAX_NAME_CHARS:
        if _EXTENSION.search(text) is not None and _FILE.fullmatch(text) is not None and not _SENTENCE.search(text):
            return True
        if text[-1] == ")" and _LINK.fullmatch(text) is not None:
            return True
    if not _is_address(words[0].rstrip(",;")):
        return False
    parts = text.split(None, _MAX_PARTS)
    return len(parts) <= _MAX_PARTS and all(_is_address(part.rstrip(",;")) for part in parts)


def is_id(text: str) -> bool:
    """Return whether *text* is a word with a sign that ids have and words have not, such as `doc-17`."""
    text = text.strip()
    return len(text) <= _MAX_NAME_CHARS and _ID.fullmatch(text) is not None and is_reference(text)


def _is_address(word: str) -> bool:
    if len(word) > _MAX_ADDRESS_CHARS or not ("." in word or "/" in word or ":" in word or "\\" in word):
        return False
    is_short = len(word) <= _MAX_NAME_CHARS
    if _is_unspaced(word) and (not is_short or any(stop in word for stop in _STOPS)):
        return False
    return _ADDRESS.fullmatch(word) is not None or (is_short and _FILE.fullmatch(word) is not None)


def _has_space(text: str) -> bool:
    return " " in text or len(text.split(None, 1)) > 1


def _is_unspaced(word: str) -> bool:
    return not word.isascii() and _UNSPACED.search(word, 0, _MAX_ADDRESS_CHARS) is not None
