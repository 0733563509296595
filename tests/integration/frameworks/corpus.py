"""Documents and questions that every application of this folder uses."""

from __future__ import annotations

from typing import Final, NamedTuple


class Document(NamedTuple):
    """One document of the corpus."""

    id: str
    title: str
    text: str


class Question(NamedTuple):
    """One request that a user of an application sends."""

    session: str
    user: str
    text: str


DOCUMENTS: Final = (
    Document("d01", "Eiffel Tower", "The Eiffel Tower in Paris is 330 metres tall. It opened in 1889 for a fair."),
    Document("d02", "Sydney Opera House", "Jørn Utzon designed the Sydney Opera House. It opened in 1973."),
    Document("d03", "Berlin Wall", "The Berlin Wall fell in November 1989. It had divided the city since 1961."),
    Document("d04", "Golden Gate Bridge", "The Golden Gate Bridge spans 1280 metres. Joseph Strauss led its design."),
    Document("d05", "Mount Everest", "Mount Everest is 8849 metres tall. Hillary and Norgay climbed it in 1953."),
    Document("d06", "Panama Canal", "The Panama Canal is 82 kilometres long. Ships first used it in 1914."),
    Document("d07", "Colosseum", "The Colosseum in Rome held 50000 people. Vespasian began its construction."),
    Document("d08", "Brooklyn Bridge", "John Roebling designed the Brooklyn Bridge. It leads to Manhattan."),
    Document("d09", "Berlin TV Tower", "The television tower in Berlin is 368 metres tall. It opened in 1969."),
    Document("d10", "Channel Tunnel", "The Channel Tunnel is 50 kilometres long. Trains have used it since 1994."),
    Document("d11", "Great Wall of China", "The Great Wall of China is 21196 kilometres long. Most is Ming work."),
    Document("d12", "Statue of Liberty", "Frédéric Bartholdi designed the Statue of Liberty. It stands in New York."),
)

TOP_K: Final = 3

QUESTIONS: Final = (
    Question("session-1", "ada", "How tall is the Eiffel Tower?"),
    Question("session-1", "ada", "Who designed the Sydney Opera House?"),
    Question("session-2", "ben", "When did the Berlin Wall fall?"),
)
"""Questions that can be understood without the earlier ones of their session."""

CONVERSATIONS: Final = (
    Question("session-1", "ada", "How tall is the Eiffel Tower?"),
    Question("session-1", "ada", "And when was it opened?"),
    Question("session-2", "ben", "Who designed the Sydney Opera House?"),
)
"""Questions of which the second needs the first to be understood."""
