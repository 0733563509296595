"""Tells whether an answer and the chunks are in one script and one language, so that their words can be compared.

Where they are not, every word of the answer would be missing from the chunks, however true the answer is: the embedded
judge then gives no score, with a reason. (Whether declining is recognised in a language is asked in `languages`.)

**Order.** Before anything is compared, `choose_language` says in which language both are read, and `shares_script`
whether they have a script in common. After all statements were compared, `shares_language` looks for another language
in an answer most of whose words are missing.

**Invariants**, and their tests in `tests/unit/judges/test_shared_language.py`, unless a file is named:
    an answer whose words are in the chunks is judged       `test_words_that_are_found_are_in_one_language`
    an invented answer in the language of the chunks is     `test_a_foreign_word_is_not_another_language` and
        judged: a refused score would hide it               `test_a_list_of_invented_names_is_not_another_language`
                                                            (`test_embedded.py`)
    each number below decides where its docstring says      the tests named after the numbers

**Changing it.** A call that is judged no more, or for the first time, is another result: raise `EmbeddedJudge.version`.
Of thirty sentences each in seven languages of one alphabet (`tests/support/languages.py`), held against a text in each
of the six others, 86 % are recognised as another language, and none that is held against another text in its own.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import Final

from ragtrace.judges.lexical.lexicon import SAMPLE_CHARS, count_function_words, count_scripts, detect_language
from ragtrace.judges.lexical.statement_comparison import Finding

ANSWER_SAMPLE_CHARS: Final = 4 * SAMPLE_CHARS
"""Number of characters at the start of an answer in which function words are counted, where its language is in doubt.

More than elsewhere, as an answer may begin with a title, a list or a quotation; more of them cost time in such calls.
"""
SHARED_SCRIPT: Final = 0.6
"""Least share of the answer's letters that are in scripts of the chunks.

The other letters may be names and terms, of which an answer in Chinese or Arabic may have many. A higher share refuses
such answers; a lower one compares texts that have little more than names in common.
"""
SAMPLED_CHUNKS: Final = 3
"""Number of first chunks in which the language of the chunks is looked for, for a first one that is a table or a list.

More cost time in every call that is not understood, and are rarely in another language.
"""
ENOUGH_WORDS: Final = 12
"""Words of an answer from which on it must have function words of the chunks' language.

English text has 35 to 45 % function words, a sentence of twelve words practically never none. Capitalised words are not
counted. With fewer, a list of keywords is taken for another language; with more, an answer in a language whose function
words are not known, such as Finnish, is held to be invented (of single sentences in twelve such languages 50 % are
recognised, with 6 words 75 %).
"""
FOREIGN_SHARE: Final = 0.04
"""Share of function words of the chunks' languages up to which an answer of `ENOUGH_WORDS` is in another language.

A tenth of what English text has: the few that another language happens to spell alike ("in", "die").
"""
FEWEST_WORDS: Final = 3
"""Words of an answer from which on function words of another language alone say that it is in that language.

"La Rochelle" has one, and is no French. With 8, not 86 but 62 % of the sentences named above are recognised; fewer than
3 recognise none more.
"""


def choose_language(answer: str, *, spoken: str, chunk: str) -> str:
    """Return the code of the language in which to compare *answer* and *chunk*, or "" if it is not clear.

    *spoken* is the language that was detected in the answer.
    """
    written = ""
    if spoken != "en":
        written = detect_language(chunk[:SAMPLE_CHARS])
        if written and spoken and written != spoken:
            _, own, other = count_function_words(answer[:SAMPLE_CHARS], (written,))
            return written if own >= other else spoken
    return spoken or written


def shares_script(answer: str, chunks: Iterable[str], *, has_words: bool) -> Generator[int, None, bool]:
    """Return whether most letters of *answer* are in a script, such as Latin, that the chunks use.

    False for an answer without a word: *has_words* says whether its statements have any that is compared.
    """
    beginning = answer[:SAMPLE_CHARS]
    if not has_words and not any(map(str.isalnum, beginning)):
        return False
    letters = count_scripts(beginning)
    known: set[str] = set()
    for text in chunks:
        if known.issuperset(letters):
            break
        known.update(count_scripts(text[:SAMPLE_CHARS]))
        yield SAMPLE_CHARS
    shared = sum(letters_of_script for name, letters_of_script in letters.items() if name in known)
    return shared >= SHARED_SCRIPT * sum(letters.values())


def shares_language(answer: str, chunks: Iterable[str], findings: Sequence[Finding]) -> bool:
    """Return whether *answer* and *chunks* seem to be in one language, so that their words can be compared.

    True, too, where a language is not recognised or most words are found in the chunks anyway.

    Args:
        answer: the text of the answer, without code, whose words are those of no language.
        chunks: the texts of the chunks.
        findings: what comparing the statements of *answer* with the chunks has found.
    """
    if sum((2 * finding.deficit - 1) * finding.weight for finding in findings) < 0:
        return True
    known = {detect_language(text[:SAMPLE_CHARS], 2) for text in islice(chunks, SAMPLED_CHUNKS)} - {""}
    if not known:
        return True
    words, own, other = count_function_words(answer[:ANSWER_SAMPLE_CHARS], known)
    if own >= other and own:
        return words < ENOUGH_WORDS or own > FOREIGN_SHARE * words
    return words < FEWEST_WORDS or (not other and words < ENOUGH_WORDS)
