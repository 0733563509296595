"""Which questions cannot be understood without the conversation before them."""

from __future__ import annotations

import pytest

from ragtrace.core.follow_ups import needs_earlier_turns
from tests.support.conversations import Conversation, conversations


@pytest.mark.parametrize("conversation", conversations(), ids=lambda conversation: conversation.id)
def test_follow_ups_are_told_from_whole_questions(conversation: Conversation) -> None:
    """A question about another topic, or one that names its subject, is understood alone."""
    assert needs_earlier_turns(conversation.query) is not conversation.alone


@pytest.mark.parametrize(
    "query",
    [
        "What is DNA?",
        "what is dna",
        "weather in Ghent",
        "WHO",
        "What time is it?",
        "Is it raining today?",
        "Is it legal to park here?",
        "How long does it take to boil an egg?",
        "Why is it important to sleep?",
        "And what is HTTP?",
        "And who won the cup in 1998?",
        "e-commerce?",
        "Y Combinator?",
        "En passant?",
        "continue",
        "Thank you!",
        "Wer sind Sie?",
        "Wie spät ist es?",
        "Quel temps fait-il ?",
        "Was ist mit dem Flug MH370 passiert?",
        "那不勒斯在哪里\uff1f",
        "Is that the museum with the whale?",
        "Does the tent have poles?",
        "refund policy?",
        "",
        None,
    ],
)
def test_an_ordinary_short_question_is_understood_alone(query: str | None) -> None:
    """It must not go unscored."""
    assert not needs_earlier_turns(query)


@pytest.mark.parametrize(
    "query",
    ["YES!", "  yes , please ", "Oui.", "да", "はい", "Why?", "Pourquoi ?", "And then?", "Which ones?",
     "What\u2019s its price?",
     "For them?", "Wie hoch ist er?", "Combien coûte-t-elle ?", "它有多高\uff1f", "那冬天呢\uff1f", "И зимой?"],
)  # fmt: skip
def test_replies_and_short_follow_ups(query: str) -> None:
    """In any case and punctuation."""
    assert needs_earlier_turns(query)


def test_a_long_text_is_decided_at_once() -> None:
    """No rule looks at a question of more than sixty characters."""
    assert not needs_earlier_turns("and " * 1_000_000 + "?")
