"""Live calls of a conversation: which earlier turns reach the judge's server, from prompts, spans and the id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import ragtrace
from ragtrace.core.labels import Turn
from ragtrace.evaluation.earlier_turns import CUT, MOST_CHARS
from ragtrace.testing import Captured, OpenAIServer
from tests.support.conversations import Conversation, conversations

ANSWERS = {each.query: each.answer for each in conversations()}
KIND = "openinference.span.kind"


@ragtrace.generate
def chat(messages: Any, docs: list[str]) -> str:
    return ANSWERS.get(messages[-1]["content"], "I see.")


@ragtrace.generate
def say(question: str, docs: list[str], reply: str, session_id: str | None = None) -> str:
    return reply


def watch(server: OpenAIServer, turns: int | None = None, **settings: Any) -> Captured:
    captured = Captured()
    limits = ragtrace.JudgeLimits(turns=turns)
    judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none", limits=limits)
    defaults: dict[str, Any] = {"sampling": ragtrace.Sampling(rate=1.0), "metrics": ["answer_relevancy"]}
    ragtrace.configure(exporter=captured.signals, screen=None, judge=judge, **{**defaults, **settings})
    return captured


def shown(server: OpenAIServer) -> dict[str, list[Mapping[str, str]] | None]:
    """The earlier turns in the judge's request about each query; None: the request has no such field."""
    found = [chat.data or {} for chat in server.chats]
    return {data["query"]: data.get("earlier_turns") for data in found}


def as_data(turns: tuple[Turn, ...]) -> list[Mapping[str, str]] | None:
    return [{"role": turn.role, "text": turn.text} for turn in turns[-6:]] or None


def results(captured: Captured) -> dict[str, int]:
    """How many calls have each value, or reason for having none."""
    counts: dict[str, int] = {}
    for event in captured.events:
        attributes = event.log_record.attributes or {}
        result = str(attributes.get("ragtrace.reason", "scored"))
        counts[result] = counts.get(result, 0) + 1
    return counts


def in_a_session(conversation: Conversation) -> None:
    """Hold the conversation, without any history among the arguments."""
    said = [*conversation.turns, Turn("user", conversation.query), Turn("assistant", conversation.answer)]
    for question, reply in zip(said[::2], said[1::2], strict=True):
        say(question.text, conversation.contexts, reply.text, session_id=conversation.id)


def test_turns_in_the_prompt_reach_the_judge() -> None:
    """The latest six before the query, without the messages of the system: all that each follow-up needs."""
    with OpenAIServer() as server:
        captured = watch(server)
        for each in conversations():
            chat(each.messages, each.contexts)
        assert ragtrace.flush(60)
        assert shown(server) == {each.query: as_data(each.turns) for each in conversations()}
    assert results(captured) == {"scored": 30}


def test_turns_of_the_same_session_reach_the_judge() -> None:
    """Those of earlier calls with the same conversation id, judged or not."""
    queries = {each.query for each in conversations()}
    last = ragtrace.Sampling(rate=0.0, always=[lambda call: call.query in queries])
    with OpenAIServer() as server:
        watch(server, sampling=last)
        for each in conversations():
            in_a_session(each)
        assert ragtrace.flush(60)
        found = shown(server)
    assert found == {each.query: as_data(each.turns) for each in conversations()}


def test_no_turns_are_shown_where_the_setting_is_0() -> None:
    """A follow-up is unscored then, with the reason; a whole question is scored."""
    with OpenAIServer() as server:
        captured = watch(server, turns=0)
        for each in conversations():
            chat(each.messages, each.contexts)
        assert ragtrace.flush(60)
        assert set(map(str, shown(server).values())) == {"None"}
        assert not any("earlier_turns" in json.dumps(request.body) for request in server.chats)
    details = [dict(event.log_record.attributes or {}) for event in captured.events]
    assert all(each["ragtrace.eval.detail.no_earlier_turns"] is True for each in details)
    alone = sum(each.alone for each in conversations())
    assert results(captured) == {"scored": alone, "query_needs_turns": 30 - alone}


def test_the_setting_bounds_the_number_of_turns() -> None:
    """The newest are kept; also through the variable."""
    (long,) = (each for each in conversations() if each.id == "long-conversation")
    with OpenAIServer() as server:
        watch(server, turns=2)
        chat(long.messages, long.contexts)
        assert ragtrace.flush(60)
        assert shown(server) == {long.query: as_data(long.turns[-2:])}


def test_long_conversations_are_bounded_in_characters() -> None:
    """A hundred turns of 3,000 characters, in a prompt whose beginning was not recorded, and in a session."""
    texts = [f"{number} begins {'x' * 3_000} ends {number}" for number in range(1_000)]
    messages = [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]
    with OpenAIServer() as server:
        watch(server)
        chat([*messages, {"role": "user", "content": "Yes."}], ["A passage."])
        for at in range(0, 300, 2):
            say(texts[at], ["A passage."], texts[at + 1], session_id="long")
        say("No.", ["A passage."], "Fine.", session_id="long")
        assert ragtrace.flush(60)
        found = shown(server)
    for query, last in (("Yes.", 999), ("No.", 299)):
        turns = found[query] or []
        assert [turn["text"].split()[0] for turn in turns] == [str(last - 3 + at) for at in range(4)]
        assert all(CUT in turn["text"] and turn["text"].endswith(turn["text"].split()[0]) for turn in turns)
        assert sum(len(turn["text"]) for turn in turns) <= MOST_CHARS


def test_turns_are_redacted_before_they_leave() -> None:
    """In a prompt and in a session, as query and answer are."""
    mail = "I am bob@example.org"
    with OpenAIServer() as server:
        watch(server, redact=ragtrace.Redact([r"\S+@\S+"]))
        chat([{"role": "user", "content": mail}, {"role": "user", "content": "Yes."}], ["A passage."])
        say(mail, ["A passage."], "Hello bob@example.org!", session_id="s")
        say("No.", ["A passage."], "Fine.", session_id="s")
        assert ragtrace.flush(60)
        assert not any("bob" in json.dumps(request.body) for request in server.chats)
        assert shown(server)["Yes."] == [{"role": "user", "text": "I am [redacted]"}]
        assert shown(server)["No."] == [
            {"role": "user", "text": "I am [redacted]"}, {"role": "assistant", "text": "Hello [redacted]"}
        ]  # fmt: skip


@pytest.mark.parametrize("capture", ["NO_CONTENT", "SPAN_AND_EVENT"])
def test_turns_of_a_session_are_written_nowhere(capture: str) -> None:
    """The judge is shown them; span and events of the call that follows have its own texts at most."""
    with OpenAIServer() as server:
        captured = watch(server, capture_content=capture)
        say("How high is the Kestrel Light?", ["A passage."], "62 metres.", session_id="s")
        assert ragtrace.flush(60)
        before = len(captured.spans), len(captured.events)
        first = dict(captured.events[-1].log_record.attributes or {})
        assert first["ragtrace.eval.detail.no_earlier_turns"] is True
        say("And its age?", ["A passage."], "A hundred years.", session_id="s")
        assert ragtrace.flush(60)
        assert len(shown(server)["And its age?"] or []) == 2
    written = [span.to_json() for span in captured.spans[before[0] :]]
    written += [f"{each.log_record.body} {each.log_record.attributes}" for each in captured.events[before[1] :]]
    assert written
    assert not any("Kestrel" in text or "62 metres" in text for text in written)


def test_turns_in_the_spans_of_an_instrumentation_reach_the_judge() -> None:
    """Of a call that nobody has decorated."""
    (each,) = (each for each in conversations() if each.id == "possessive")
    provider = TracerProvider(shutdown_on_exit=False)
    captured = Captured()
    provider.add_span_processor(ragtrace.HoldProcessor(SimpleSpanProcessor(captured.signals.spans), evaluate=True))  # type: ignore[arg-type]
    tracer = provider.get_tracer("openinference.instrumentation.langchain")
    with OpenAIServer() as server:
        judge = ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none")
        sampling = ragtrace.Sampling(rate=1.0)
        ragtrace.configure(
            telemetry=ragtrace.TelemetryOptions(tracer_provider=provider),
            screen=None,
            judge=judge,
            sampling=sampling,
            metrics=["answer_relevancy"],
        )
        with tracer.start_as_current_span("chain") as root:
            root.set_attributes({KIND: "CHAIN", "input.value": each.query, "output.value": each.answer})
            with tracer.start_as_current_span("retriever") as span:
                span.set_attributes({KIND: "RETRIEVER", "retrieval.documents.0.document.content": each.contexts[0]})
            with tracer.start_as_current_span("llm") as span:
                span.set_attribute(KIND, "LLM")
                for at, message in enumerate(each.messages):
                    span.set_attribute(f"llm.input_messages.{at}.message.role", message["role"])
                    span.set_attribute(f"llm.input_messages.{at}.message.content", message["content"])
                span.set_attribute("llm.output_messages.0.message.role", "assistant")
                span.set_attribute("llm.output_messages.0.message.content", each.answer)
        assert ragtrace.flush(60)
        assert shown(server) == {each.query: as_data(each.turns)}
    ragtrace.shutdown()
    provider.shutdown()


def test_the_tokens_of_turns_are_a_metric_of_their_own() -> None:
    """A part of the judge's input tokens; a call without turns adds nothing."""
    (each,) = (each for each in conversations() if each.id == "possessive")
    with OpenAIServer() as server:
        captured = watch(server)
        say("What is a ridge tile?", ["A passage."], "A tile.")
        assert ragtrace.flush(60)
        assert "ragtrace.eval.turn_tokens" not in captured.metrics()
        chat(each.messages, each.contexts)
        assert ragtrace.flush(60)
    metrics = captured.metrics()
    (turns,) = metrics["ragtrace.eval.turn_tokens"].data_points
    tokens = {p.attributes["gen_ai.token.type"]: p.value for p in metrics["ragtrace.eval.tokens"].data_points}
    assert 0 < turns.value < tokens["input"]
    assert dict(turns.attributes) == {"ragtrace.evaluator.id": "openai"}
    details = [dict(event.log_record.attributes or {}) for event in captured.events]
    assert details[-1]["ragtrace.eval.detail.turn_tokens"] == turns.value
    assert details[-1]["ragtrace.eval.detail.earlier_turns"] == 2
