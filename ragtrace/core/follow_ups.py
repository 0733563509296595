"""Recognition of questions that cannot be understood without the conversation before them, such as "And its height?".

The rules are conservative: an ordinary short question must not go unscored. They know whole replies ("Yes."), and short
questions whose subject is a pronoun; most follow-ups that leave out a part in another way are not recognised.
"""

from __future__ import annotations

import unicodedata
from typing import Final

from ragtrace.core.text import LazyPattern

QUERY_NEEDS_TURNS: Final = "query_needs_turns"
"""Reason for missing scores, and attribute of the judgement, where a query was judged without the turns it needs."""
_MOST_CHARS: Final = 60
"""Most characters of a question that may need earlier turns; longer ones nearly always name their topic."""
_WORDS: Final = LazyPattern(r"[^\W_]+(?:['-][^\W_]+)*")
_MARKS: Final = ("?", "\uff1f", "\u061f")

# Replies without a question mark. None is also the name of a command or a keyword, such as "continue".
_REPLIES: Final = frozenset(
    "yes|yes please|yeah|yep|yup|no|nope|no thanks|ok|okay|sure|please do|go on|go ahead|tell me more|explain that"
    "|explain it|and then|what else|anything else|why not|how so|how come|which one|which ones|for example|such as"
    "|like what|are you sure|is that all|both|neither|the first one|the second one|the third one|the last one"
    "|the former|the latter|the other one|that one|this one|all of them|both of them|none of them"
    "|ja|ja bitte|nein|nein danke|doch|gerne|ja gerne|und dann|warum nicht|zum beispiel|beide|den ersten|das erste"
    "|die erste|das zweite|die zweite|den zweiten"
    "|oui|oui merci|non|d'accord|pourquoi pas|et alors|et ensuite|par exemple|les deux|le premier|la première"
    "|le deuxième|la deuxième"
    "|sí|si|sí por favor|vale|de acuerdo|por qué no|y luego|por ejemplo|los dos|el primero|la primera"
    "|sim|sim por favor|não|e depois|por exemplo|os dois|o primeiro|sì|va bene|e poi|per esempio|entrambi"
    "|nee|nee bedankt|en dan|bijvoorbeeld|да|нет|\u0430 потом|например|نعم|لا|はい|いいえ|是的|不是|好的|然后呢".split(
        "|"
    )
)
_BARE_QUESTIONS: Final = frozenset(
    "why|how|when|where|who|which|how many|how much|how long|how often|how far|how exactly|since when|until when"
    "|for how long|really|is that so|is that true|why is that|then what|what then|and me|warum|wieso|weshalb|wie|wann"
    "|wo|wer|welche|welcher|welches|seit wann|wirklich|pourquoi|comment|quand|où|lequel|laquelle|combien|vraiment"
    "|por qué|cómo|cuándo|dónde|cuál|cuánto|por quê|por que|como|quando|onde|qual|quanto|perché|come|dove|quale|waarom"
    "|hoe|wanneer|waar|welke|почему|зачем|как|когда|где|сколько|لماذا|كيف|متى|أين|なぜ|なぜですか|どうして"
    "|どうしてですか|为什么|怎么|什么时候".split("|")
)

_OPENERS: Final = frozenset("and but und aber et mais pero и \u0430 но maar".split())
"""Words that begin the continuation of a question, and no other question."""
_LETTER_OPENERS: Final = {
    "y": frozenset("en la el los las su sus para con si qué cuándo cómo cuánto por cuál".split()),
    "e": frozenset("in il la lo i le gli o a os as per con se quando come quanto no na para sua seu suo".split()),
    "en": frozenset("de het in voor als wat waar hoe wanneer zijn haar".split()),
}
"""Words that continue a question only before certain other words, as they are also letters or foreign words."""
_FRAGMENT_STARTS: Final = frozenset(
    "its their his her the a an this that these those my your our in on at for from with without to by after before"
    " during between if der die das dem den ein eine einem einer im am für mit ohne nach vor bei wenn seine seiner"
    " ihre ihrer le la les un une des sa son ses leur leurs en dans pour avec sans après avant si el los su sus"
    " para con sin в на для без если".split()
)
_MOST_WORDS: Final = 6
_EXPLETIVES: Final = frozenset(
    "time day date year month season weekend rain raining snow snowing sunny hot cold warm windy cloudy weather safe"
    " legal illegal ok okay going like mean late true normal possible necessary good bad easy hard better worth take"
    " spät kalt warm heute".split()
)
"""Words of questions in which "it" refers to nothing, such as "What time is it?"."""
_ASKED: Final = LazyPattern(
    r"(?:and |but |so )?(?:"
    r"(?:(?:what|how|when|where|why|which|who)(?: \w+){0,2} )?"
    r"(?:is|are|was|were|do|does|did|can|could|will|would|should|has|have|had) "
    r"(?:(?:it|they|he|she)(?: \w+){0,2}|those|these"
    r"|that(?: (?:\w+ed|work|happen|done|made|cost|help|apply|possible|correct|right|enough))?)"
    r"|(?:what|how|where|when|who|which)(?: \w+)?(?: is| are| was| were|'s) (?:its(?: \w+){1,2}|(?:their|his|her) \w+)"
    r"|(?:how|where|when|why) (?:do|does|did|can|could|should|would|to|must)(?: (?:i|you|we|one))? \w+"
    r" (?:it|them|those|that|him|her)"
    r"|(?:can|could|would|will) you (?:please )?\w+ (?:it|that|them)(?: (?:again|more|further|please|briefly))?"
    r"|(?:what|how) about(?: \w+){1,4}"
    r"|(?:in|on|at|for|with|without|from|after|before|during|until|since)"
    r" (?:(?:it|them|him|her)|(?:the|a|an|that|those) \w+)"
    r"|wie \w+ (?:ist|sind|war|waren) (?:er|sie|es)|was ist mit(?: \w+){1,2}"
    r"|(?:was|wo|wann|warum|wie) (?:ist|sind|war|kostet|kosten) (?:er|sie|es|(?:seine?|ihre?) \w+)"
    r"|quelle?s? (?:est|sont|était) (?:son|sa|ses|leurs?) \w+"
    r"|(?:combien|où|quand|comment) (?!fait|faut|pleut|neige|a-|est-)[^\W\d_]+-(?:t-)?(?:ils?|elles?)"
    r"|(?:сколько|где|когда|почему|как) (?:он|она|оно|они)(?: \w+)?"
    r"|(?:それ|その|彼女|彼は).{1,14}|它们?.{1,12}|那.{1,6}呢"
    r")"
)
"""Pattern of short questions about something named before, in English and simple forms of other languages."""


def needs_earlier_turns(query: str | None) -> bool:
    """Return whether *query* is a reply or a follow-up question that cannot be understood alone."""
    if not query or len(query) > _MOST_CHARS:
        return False
    text = unicodedata.normalize("NFKC", query).strip()
    words = _WORDS.findall(text.casefold().replace("\u2019", "'"))
    joined = " ".join(words)
    if joined in _REPLIES:
        return True
    if not text.endswith(_MARKS) or not words or len(words) > _MOST_WORDS:
        return False
    if joined in _BARE_QUESTIONS or _continues_question(words):
        return True
    # The German word "Sie" with a capital letter is the polite "you", which refers to nothing before.
    return bool(_ASKED.fullmatch(joined)) and _EXPLETIVES.isdisjoint(words) and " Sie" not in text


def _continues_question(words: list[str]) -> bool:
    """Return whether a question begins with "and" or the like and is incomplete, such as "and in winter?"."""
    first, *others = words
    if first in _LETTER_OPENERS:
        return bool(others) and others[0] in _LETTER_OPENERS[first]
    return first in _OPENERS and bool(others) and (len(others) <= 2 or others[0] in _FRAGMENT_STARTS)
