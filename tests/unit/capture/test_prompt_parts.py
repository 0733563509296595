"""Question and documents in prompts that have both in one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace.capture.prompt_parts import split_prompt

TWO = ["Paris is big.", "Rome is old."]
PROMPTS = {
    "numbered": "Use the documents.\nContext:\n[1] Paris is big.\n[2] Rome is old.\n\nQuestion: How big?\nAnswer:",
    "dotted": "Question: How big?\n\nSources:\n1. Paris is big.\n2. Rome is old.",
    "bullets": "Documents:\n- Paris is big.\n- Rome is old.\n\nQuestion: How big?",
    "blank lines": "Context: Paris is big.\n\nRome is old.\n\nQuery: How big?\nAnswer: ",
    "tags": "<context><doc id='1'>Paris is big.</doc><doc>Rome is old.</doc></context>\n<question>How big?</question>",
    "rules": "### Context:\nParis is big.\n---\nRome is old.\n\n### Question: How big?",
    "LlamaIndex": "Context information is below.\n---------------------\nParis is big.\n\nRome is old.\n"
    "---------------------\nGiven the context information and not prior knowledge, answer the query.\n"
    "Query: How big?\nAnswer: ",
    "headings": "## Documents\nDocument 1: Paris is big.\nDocument 2: Rome is old.\n\n## Question\nHow big?",
}


@pytest.mark.parametrize("form", PROMPTS)
def test_the_usual_forms_of_prompts_are_split(form: str) -> None:
    """Each document as it was given, in order."""
    parts = split_prompt(PROMPTS[form])
    assert parts is not None
    assert (parts.question, [document.text for document in parts.documents]) == ("How big?", TWO)


def test_documents_that_are_questions_with_answers_stay_whole() -> None:
    """The labels inside the documents are not those of the prompt."""
    faq = "Question: Is Paris big?\nAnswer: Yes."
    for prompt in (f"Context:\n{faq}\n\nQuestion: How big?", f"Question: How big?\n\nContext:\n{faq}\n\nAnswer:"):
        parts = split_prompt(prompt)
        assert parts is not None
        assert (parts.question, [document.text for document in parts.documents]) == ("How big?", [faq])


@pytest.mark.parametrize(
    "text",
    [
        "How do I write a context: manager?",
        "Paris is big.\n\nHow big is it?",
        "What is the question of life?",
        "Answer in one word: is Paris big?",
        "",
    ],
)
def test_a_text_without_marked_documents_is_not_split(text: str) -> None:
    """Nothing is taken for a document that may be none."""
    assert split_prompt(text) is None


def test_documents_without_a_marked_question_have_none() -> None:
    """The question is then another message, or not known."""
    parts = split_prompt("Here are the relevant documents for the context:\n\nParis is big.\n\nInstruction: Be brief.")
    assert parts is not None
    assert (parts.question, [document.text for document in parts.documents]) == (None, ["Paris is big."])


@given(st.text(max_size=400))
def test_what_is_found_stands_in_the_prompt(text: str) -> None:
    """Nothing is invented."""
    parts = split_prompt(f"Context:\n{text}\n\nQuestion: {text}")
    if parts is not None:
        assert all(
            document.text in text + "Question:" + text or document.text in f"{text}\n\nQuestion: {text}"
            for document in parts.documents
        )
