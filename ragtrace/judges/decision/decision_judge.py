"""`DecisionJudge`: a decision model answers yes-or-no questions about a call with probabilities, in one request."""

from __future__ import annotations

import asyncio
import copy
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

from ragtrace.core.cost import TURN_TOKENS, Cost, record_cost
from ragtrace.core.errors import JudgeError, SettingsError
from ragtrace.core.follow_ups import QUERY_NEEDS_TURNS, needs_earlier_turns
from ragtrace.core.labels import ChunkLabel, Claim, Fact, Turn
from ragtrace.core.price import (
    Price,
    check_price,
    cost_of_rejection,
    cost_of_reply,
    decision_price,
    list_price,
    read_usage,
)
from ragtrace.core.text import chars_of, encodable, first_ranks
from ragtrace.core.types import JUDGE_FINGERPRINT, JUDGE_MODEL, EvaluatorType, Judgement, Metric, Plain, RagCall
from ragtrace.judges.decision import numbered_questions, quoted_questions
from ragtrace.judges.decision.questions import (
    ADDRESSES,
    DECLINES,
    Answer,
    DecisionRequest,
    DecisionTexts,
    NumberedText,
    Question,
    Subject,
    Window,
    Windows,
    answer_parts,
    chunk_name,
    combine,
    plan_requests,
    reference_name,
    support_name,
    why_unanswered,
)
from ragtrace.judges.decision.wire_forms import NO_LOGPROBS, WIRE_FORMS, Protocol, likeliest_words, read_reply
from ragtrace.judges.lexical.embedded import STEP_CHARS, EmbeddedJudge, SplitAnswer
from ragtrace.judges.lexical.lexicon import stems
from ragtrace.judges.llm.chat import AT_ONCE, run_concurrently
from ragtrace.judges.llm.injection_signals import has_injection_signal
from ragtrace.judges.llm.invisible_chars import remove_invisible, without_invisible
from ragtrace.judges.llm.server_connection import OPENAI, ClientMaker, ServerConnection, import_http_library
from ragtrace.judges.llm.server_errors import ServerError, rejected_parameter
from ragtrace.system.event_loops import beside_loop

if TYPE_CHECKING:
    from ragtrace.core.options import JudgeLimits
    from ragtrace.judges.lexical.statements import Statement

QuestionForm: TypeAlias = Literal["numbered", "quoted"]
_FORMS: Final[Mapping[QuestionForm, tuple[str, Windows]]] = {
    "numbered": (numbered_questions.VERSION, numbered_questions.windows),
    "quoted": (quoted_questions.VERSION, quoted_questions.windows),
}
"""Version of the questions of each form, and what makes them. Probabilities of two versions are not comparable."""
_LIKELY: Final = 0.5
"""Lowest raw probability that counts as yes."""
_FIELDS: Final = frozenset({"claims", "answer_label", "chunks", "reference_facts", "answer_facts"})
"""Fields of a judgement that metrics offered here may need. Claims of the answer are not compared with a reference."""
_ABOUT_STATEMENTS: Final = frozenset({"hallucinated", "faithfulness", "hallucination"})
_ABOUT_CHUNKS: Final = frozenset({
    "context_relevance", "context_relevance_weighted", "contextual_accuracy", "precision_at_k",
    "average_precision_at_k", "reciprocal_rank",
})  # fmt: skip
_RELEVANCY: Final = "answer_relevancy"
_RECALL: Final = "factual_correctness_recall"
_ABOUT_ANSWER: Final = frozenset({_RELEVANCY, "answered"})
"""Metrics of the answer as a whole. `answered_without_context` is left to the screen, which needs no probability."""
_COMBINED: Final = frozenset({"quality_weighted", "quality_harmonic", "quality_minimum"})
_OFFERED: Final = _ABOUT_STATEMENTS | _ABOUT_CHUNKS | _ABOUT_ANSWER | _COMBINED | {_RECALL}
_AT_K: Final = re.compile(r"(?:average_)?precision_at_\d+")
"""Pattern of the names of metrics over the first K chunks, which need no other labels than those with the usual K."""
_DECLINING: Final[frozenset[Subject]] = frozenset({"declines"})
_BY_DEFAULT: Final[frozenset[Subject]] = frozenset({"support", "chunks", "declines", "relevancy"})
_CLOSEST_CHUNKS: Final = 3
_AS_CLOSE: Final = 0.8
_FEWEST_CHARS: Final = 2_000
"""Fewest characters to which the size of a request is lowered when the server says that requests are too long."""
_MOST_QUESTIONS: Final = re.compile(
    r"\bquestions?\b.{0,60}?\b(?:at most|maximum(?: of)?|limit(?: of)?|up to)\D{0,3}(\d{1,4})"
)
"""Pattern of a server's error about the number of questions."""
_REJECTING: Final = frozenset({400, 413, 422})
_MOST_LOGPROBS: Final = re.compile(
    r"\b(?:at most|more than|max allowed|less than or equal to|between 0 and|up to)\D{0,3}(\d{1,2})\b"
)
"""Pattern of a server's error about the number of log probabilities: 5 of Azure and OpenAI's newer models, 8 of xAI."""
_REPLY_TOKENS: Final = 16
"""Limit of the reply under its newer name: models that know it alone want room to finish, and stop after the word."""
_UNKNOWN_PATH: Final = frozenset({404, 405, 501})
"""Statuses of servers without decisions: llama.cpp has 501 where its model is no decision model."""
_MOST_CHARS_A_TOKEN: Final = 7.0
_log: Final = logging.getLogger("ragtrace")


class DecisionJudge:
    """Judge behind a server of a decision model, which answers questions about a call with probabilities.

    One request a call gives the labels of all metrics that rest on yes-or-no questions: whether the chunks support each
    statement of the answer, whether each chunk helps to answer the query, whether the answer declines, whether it
    addresses the query and, where it is asked for, whether it states each claim of the reference. The statements are
    those of `EmbeddedJudge`. More requests are sent only where a call has more questions or text than fit in one.

    The score of `hallucinated` is the largest probability that a statement is unsupported, that of `faithfulness` the
    mean probability of support; labels follow from 0.5. These probabilities are not calibrated for your data: their
    mean over calls is no rate, and scores say so. A statement without a probability leaves the call unscored.

    Examples:
        >>> with ragtrace.testing.DecisionServer() as server:  # in place of yours
        ...     judge = ragtrace.DecisionJudge("local", base_url=server.url, api_key="none")
        ...     scores = ragtrace.score(contexts=["It is in Paris."], answer="It is in Berlin.", judge=judge)
        >>> scores["hallucinated"].label
        'fail'

    Args:
        model: the model's name, as its server knows it.
        protocol: "openai" (`POST {base_url}/decisions`), "systemone" (`POST {base_url}/systemone`: Jev, vLLM,
            llama.cpp, Ollama and others), or "logprobs": any chat completions server that returns `top_logprobs`, one
            request a question, of whose reply the first token is read; for local models, which cache the state.
        base_url: of the server, up to and including "/v1"; None: OPENAI_BASE_URL, or OpenAI's own.
        api_key: None: OPENAI_API_KEY.
        client: function that makes an `AsyncOpenAI` client in place of the two, as for `OpenAIJudge`.
        questions: "numbered": the texts are one JSON text, and questions name chunks and statements by number;
            "quoted": passages and question are plain text, and each question quotes its statement. None: "quoted" with
            "logprobs", the only form there, as chat models read it far better; "numbered" with the others.
        price: US dollars a million tokens; None: the list price of the model, if it is known.
        name: the judge's id.
        limits: time for a call, retries included, calls at a time, and turns of a conversation that it is shown; None:
            those of the environment, or the defaults.
        max_questions: most questions in a request; None: 400 of "openai", 64 of "systemone", or fewer where the server
            says so.
        max_input_chars: most characters of a call's texts in a request; None: 200,000 of "openai", 96,000 of
            "systemone", 24,000 of "logprobs", and half as many each time the server says that they are too many (from
            2,000 on, half as many questions).
        timeout: seconds for one request.
        extra_body: further parts of every request, as the server knows them.

    Raises:
        SettingsError: an argument is out of its range.
    """

    type: EvaluatorType = "decision"

    def __init__(
        self,
        model: str,
        *,
        protocol: Protocol = "openai",
        base_url: str | None = None,
        api_key: str | None = None,
        client: ClientMaker | None = None,
        questions: QuestionForm | None = None,
        price: Price | None = None,
        name: str = "decision",
        limits: JudgeLimits | None = None,
        max_questions: int | None = None,
        max_input_chars: int | None = None,
        timeout: float = 60.0,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        if protocol not in get_args(Protocol):
            known = ", ".join(get_args(Protocol))
            raise SettingsError(f"protocol must be one of {known}, got {protocol!r}")
        if max_questions is not None and max_questions < 1:
            raise SettingsError(f"max_questions must be at least 1, got {max_questions!r}")
        if max_input_chars is not None and max_input_chars < _FEWEST_CHARS:
            raise SettingsError(f"max_input_chars must be at least {_FEWEST_CHARS}, got {max_input_chars!r}")
        if protocol == "logprobs" and max_questions not in (None, 1):
            raise SettingsError(
                f"max_questions must be 1 with protocol='logprobs', got {max_questions!r}; leave it out"
            )
        form = questions or ("quoted" if protocol == "logprobs" else "numbered")
        if form not in _FORMS:
            raise SettingsError(f"questions must be one of {', '.join(_FORMS)}, got {questions!r}")
        if protocol == "logprobs" and form != "quoted":
            raise SettingsError("questions must be 'quoted' with protocol='logprobs', got 'numbered'; leave it out")
        check_price(price)
        self.id, self.limits = name, limits
        connection = ServerConnection(base_url=base_url, api_key=api_key, timeout=timeout, client=client)
        if protocol == "systemone" and connection.url == OPENAI:
            raise SettingsError(
                "protocol='systemone' needs the address of a server, got none: write for instance "
                "base_url='https://api.typesafe.ai/v1', or client="
            )
        self._client = DecisionClient(
            model,
            protocol,
            connection,
            price=price,
            max_questions=max_questions,
            max_input_chars=max_input_chars,
            extra_body=extra_body,
        )
        self._questions_version, self._windows = _FORMS[form]
        self._splitter = EmbeddedJudge()
        self._subjects = _BY_DEFAULT

    @property
    def version(self) -> str:
        """Version of the judge, made of model, wire form and questions. Other versions' scores are not comparable."""
        return f"{self._client.model}/{self._client.protocol}/questions-{self._questions_version}"

    @property
    def price(self) -> Price | None:
        """Price of the model in US dollars per million tokens, or None if the price is not known."""
        return self._client.price

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* rests on labels that follow from yes-or-no questions."""
        return metric.name in _OFFERED or _AT_K.fullmatch(metric.name) is not None

    def asking(self, metrics: Sequence[Metric]) -> DecisionJudge:
        """Return a copy of this judge that asks only the questions that *metrics* need. It shares the connections."""
        import_http_library()
        judge = copy.copy(self)
        judge._subjects = _subjects_of({metric.name for metric in metrics})
        return judge

    async def aclose(self) -> None:
        """Close the connections of this judge and of the copies made by `asking`."""
        await self._client.connection.aclose()

    async def probe(self) -> str:
        """Test the connection with a tiny question, and return a sentence about the model that answered.

        Raises a `JudgeError` if no model answered.
        """
        began = monotonic()
        exchange = DecisionExchange(self._client)
        state = '{"about":"This tests a connection.","question":"","chunks":{},"answer":{}}'
        answers = await exchange.ask([DecisionRequest(state, (Question("probe", "This tests a connection."),))])
        if why := why_unanswered(answers, ["probe"]):
            raise JudgeError(why, f"{self._client.model} gave no probability", retryable=False)
        price = "price known" if self.price else "price not known: pass price="
        served = exchange.served_model or self._client.model
        took = f"{monotonic() - began:.2f} s"
        return f"{served} at {self._client.connection.server} answered in {took} ({self._client.protocol}); {price}"

    async def judge(self, call: RagCall) -> Judgement:
        """Ask the decision model about *call*, and return the labels with their probabilities.

        Raises a `JudgeError`, with all costs, if there is no reply that can be read.
        """
        exchange = DecisionExchange(self._client)
        try:
            async with self._client.connection.turn():  # calls that begin together are split and asked one by one
                judgement = await self._judgement(call, exchange)
        except JudgeError as error:
            raise exchange.cost.set_on_error(error) from error
        attributes = {**judgement.attributes, **exchange.attributes}
        if not call.earlier_turns and needs_earlier_turns(call.query):
            attributes[QUERY_NEEDS_TURNS] = True
        cost = exchange.cost if exchange.cost.n_calls else Cost(cost_usd=0.0)  # without a request the price is known
        if cost.n_calls and call.earlier_turns:
            attributes["earlier_turns"] = len(call.earlier_turns)
        elif cost.n_calls and (call.conversation_id or call.turns):
            attributes["no_earlier_turns"] = True
        return cost.set_on_judgement(replace(judgement, attributes=attributes))

    async def _judgement(self, call: RagCall, exchange: DecisionExchange) -> Judgement:
        contexts = call.contexts or ()
        chars = chars_of(call)
        shown = await beside_loop(chars, lambda: [without_invisible(document.text) for document in contexts])
        firsts = await beside_loop(chars, partial(first_ranks, shown))
        answer = call.answer or ""
        split = await self._splitter.split_cooperatively(
            answer, next((document.text for document in contexts if document.text), "")
        )
        parts, numbers = await beside_loop(chars, partial(answer_parts, answer, split.statements))
        reference: tuple[NumberedText, ...] = ()
        if "reference" in self._subjects and call.reference:
            found = (await self._splitter.split_cooperatively(call.reference, answer)).statements
            claims = [call.reference[each.start : each.end] for each in found if each.checkable]
            reference = tuple(NumberedText(at, without_invisible(text)) for at, text in enumerate(claims, 1))
        turns = [Turn(turn.role, without_invisible(turn.text).strip()) for turn in call.earlier_turns or ()]
        texts = DecisionTexts(
            query=without_invisible(call.query or "").strip(),
            turns=tuple(turn for turn in turns if turn.text),
            chunks=tuple(NumberedText(rank + 1, shown[rank].strip()) for rank in sorted(set(firsts.values()))),
            parts=parts,
            reference=reference,
        )
        subjects = self._subjects if texts.query else self._subjects & {"support", "declines", "reference"}
        if "support" in subjects and not any(part.asked for part in parts):
            subjects |= _DECLINING  # why there is no statement: whether the answer declines
        # Of an answer with more statements than are read, no score on statements can come: nothing is paid for one.
        asked = subjects if split.whole else subjects - {"support"}
        exchange.turn_chars = texts.turn_chars
        answers, mode = await exchange.ask_about(partial(self._windows, texts, asked), chars)
        reader = _JudgementReader(call, split, numbers, firsts, answers)
        return replace(
            await beside_loop(chars, partial(reader.judgement, subjects, texts)),
            mode=mode,
            attributes=await beside_loop(chars, partial(_text_attributes, call, shown, firsts)),
        )


def _subjects_of(names: Collection[str]) -> frozenset[Subject]:
    """Return what must be asked about for the metrics with these *names*."""
    found: set[Subject] = set()
    if not (_ABOUT_STATEMENTS | _COMBINED).isdisjoint(names):
        found.add("support")
    if not (_ABOUT_CHUNKS | _COMBINED).isdisjoint(names) or any(map(_AT_K.fullmatch, names)):
        found.add("chunks")
    if not (_COMBINED | {_RELEVANCY}).isdisjoint(names):
        found.add("relevancy")
    if _RECALL in names:
        found.add("reference")
    if set(names) - {_RECALL} - _ABOUT_STATEMENTS:
        found.add("declines")  # these metrics treat an answer that declines apart
    return frozenset(found)


def _text_attributes(call: RagCall, shown: Sequence[str], firsts: Mapping[int, int]) -> dict[str, Plain]:
    """Return the attributes of a judgement about the texts of the call: what was left out, and injection signals."""
    others = [call.query or "", call.answer or "", call.reference or ""]
    others += [turn.text for turn in (*(call.earlier_turns or ()), *(call.turns or ()))]
    cleaned = [remove_invisible(text) for text in others]
    hidden = sum(each.removed for each in cleaned)
    hidden += sum(len(document.text) for document in call.contexts or ()) - sum(map(len, shown))
    found: dict[str, Plain] = {"duplicate_chunks": len(firsts) - len(set(firsts.values())), "hidden_chars": hidden}
    found = {name: count for name, count in found.items() if count}
    if has_injection_signal([*(each.text for each in cleaned), *shown], hidden):
        found["injection_suspected"] = True
    return found


# --- Answers to labels ------------------------------------------------------------------------------------------------


class _JudgementReader:
    """Builder of a judgement from the answers of a decision model.

    Args:
        call: the call.
        split: its statements.
        numbers: number of the part of each statement.
        firsts: rank of the first chunk with the same text, for the rank of each chunk that is not blank.
        answers: answers by name of the question.
    """

    def __init__(
        self,
        call: RagCall,
        split: SplitAnswer,
        numbers: Mapping[int, int],
        firsts: Mapping[int, int],
        answers: Mapping[str, Answer],
    ) -> None:
        self._call, self._split, self._numbers = call, split, numbers
        self._firsts, self._answers = firsts, answers
        self._reasons: dict[str, str] = {}

    def judgement(self, subjects: frozenset[Subject], texts: DecisionTexts) -> Judgement:
        """Return the labels about *subjects*; a label without an answer is missing, with its reason."""
        if not texts.parts:
            self._reasons |= dict.fromkeys(("claims", "answer_label"), "empty_answer")
        answered = self._single(DECLINES, "answer_label") if texts.parts and "declines" in subjects else None
        relevancy = (
            self._single(ADDRESSES, "relevancy_probability") if texts.parts and "relevancy" in subjects else None
        )
        return Judgement(
            claims=self._claims(asked="support" in subjects and bool(texts.chunks)) if texts.parts else None,
            answer_label=None if answered is None else "abstained" if answered >= _LIKELY else "answered",
            answered_probability=None if answered is None else 1.0 - answered,
            relevancy_probability=relevancy,
            chunks=self._chunks() if "chunks" in subjects else None,
            reference_facts=self._facts(texts.reference) if "reference" in subjects else None,
            reasons=self._reasons,
        )

    def _single(self, name: str, field: str) -> float | None:
        if why := why_unanswered(self._answers, [name]):
            self._reasons[field] = why
            return None
        return cast("float", self._answers[name])

    def _claims(self, *, asked: bool) -> tuple[Claim, ...] | None:
        """Return the statements as claims, without any probability if one that was asked about has none."""
        checkable = [index for index, one in enumerate(self._split.statements) if one.checkable]
        names = {index: support_name(self._numbers.get(index, 0)) for index in checkable}
        if not self._split.whole:
            self._reasons["claims"] = "truncated"
            return None
        if asked and (why := why_unanswered(self._answers, names.values())):
            self._reasons["claims"] = why
            asked = False
        ranks: Mapping[str, Sequence[int]] = self._ranks_by_stem() if asked else {}
        chances = {index: cast("float", self._answers[name]) for index, name in names.items()} if asked else {}
        return tuple(
            self._claim(statement, chances.get(index), ranks) for index, statement in enumerate(self._split.statements)
        )

    def _claim(self, statement: Statement, chance: float | None, ranks: Mapping[str, Sequence[int]]) -> Claim:
        start, end = statement.start, statement.end
        text = (self._call.answer or "")[start:end]
        if not statement.checkable:
            return Claim(text, start, end, None, checkable=False)
        nothing_retrieved = self._call.contexts is not None and not self._firsts
        if chance is None and not nothing_retrieved:
            return Claim(text, start, end, None)
        supported = chance is not None and chance >= _LIKELY
        return Claim(
            text,
            start,
            end,
            "supported" if supported else "not_found",
            evidence=_closest_chunks(statement, ranks),
            unsupported=() if supported else ((start, end),),
            probability=chance,
        )

    def _ranks_by_stem(self) -> Mapping[str, Sequence[int]]:
        """Return the ranks of the chunks that contain each word stem of the answer."""
        wanted = {word.stem for one in self._split.statements if one.checkable for _, _, word in one.words}
        found: dict[str, list[int]] = defaultdict(list)
        for rank in sorted(set(self._firsts.values())):
            text = (self._call.contexts or ())[rank].text
            for at in range(0, len(text), STEP_CHARS):
                for stem in wanted.intersection(stems(text, self._split.lexicon, at, min(at + STEP_CHARS, len(text)))):
                    if not found[stem] or found[stem][-1] != rank:
                        found[stem].append(rank)
        return found

    def _chunks(self) -> tuple[ChunkLabel, ...] | None:
        if self._call.contexts is None:
            self._reasons["chunks"] = "contexts_missing"
            return None
        names = {rank: chunk_name(first + 1) for rank, first in self._firsts.items()}
        if why := why_unanswered(self._answers, names.values()):
            self._reasons["chunks"] = why
            return None
        labels: list[ChunkLabel] = []
        for rank in range(len(self._call.contexts)):
            chance = cast("float", self._answers[names[rank]]) if rank in names else 0.0
            # Grade of a chunk that probably helps to answer the query, the lowest of a relevant chunk; any other chunk
            # has 0.
            labels.append(ChunkLabel(2 if chance >= _LIKELY else 0, None, chance))
        return tuple(labels)

    def _facts(self, claims: Sequence[NumberedText]) -> tuple[Fact, ...] | None:
        names = [reference_name(claim.number) for claim in claims]
        if why := why_unanswered(self._answers, names):
            self._reasons["reference_facts"] = why
            return None
        chances = [cast("float", self._answers[name]) for name in names]
        return tuple(
            Fact(claim.text, "entailment" if chance >= _LIKELY else "neutral", chance)
            for claim, chance in zip(claims, chances, strict=True)
        )


def _closest_chunks(statement: Statement, ranks: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return the ranks of the chunks that contain most of the words of *statement*, best chunk first.

    The decision model says whether the chunks support a statement, not which of them does.
    """
    held: dict[int, float] = defaultdict(float)
    for stem, weight in {word.stem: word.weight for _, _, word in statement.words}.items():
        for rank in ranks.get(stem, ()):
            held[rank] += weight
    enough = _AS_CLOSE * max(held.values(), default=0.0)
    best = sorted([rank for rank in sorted(held) if held[rank] >= enough], key=held.__getitem__, reverse=True)
    return tuple(best[:_CLOSEST_CHUNKS])


# --- Requests ---------------------------------------------------------------------------------------------------------


class DecisionClient:
    """Client of a decision model behind one server: how it is asked, and what the server is known to take.

    Args:
        model: its name, as the server knows it.
        protocol: wire form.
        connection: connection to the server.
        price: US dollars for a million tokens; None: the list price, where it is known.
        max_questions: most questions in a request; None: as the wire form has it.
        max_input_chars: most characters of a state; None: as the wire form has it.
        extra_body: further parts of every request.
    """

    def __init__(
        self,
        model: str,
        protocol: Protocol,
        connection: ServerConnection,
        *,
        price: Price | None = None,
        max_questions: int | None = None,
        max_input_chars: int | None = None,
        extra_body: Mapping[str, object] | None = None,
    ) -> None:
        self.model, self.protocol, self.connection = model, protocol, connection
        self.form = WIRE_FORMS[protocol]
        self._price, self._extra = price, dict(extra_body or {})
        self._changed: dict[str, object] = {}
        self.most_questions = max_questions or self.form.most_questions
        self.most_chars = max_input_chars or self.form.most_chars
        self.reads_a_part = False
        """Whether the server was seen to count far fewer tokens than a request has."""
        self.was_unparsable = False
        """Whether it was logged that an answer is neither yes nor no."""

    @property
    def price(self) -> Price | None:
        """Price of the model in US dollars per million tokens, or None if the price is not known."""
        known = list_price if self.protocol == "logprobs" else decision_price
        return self._price or known(self.model, self.connection.server)

    def body(self, request: DecisionRequest) -> dict[str, object]:
        """Return the body of *request*."""
        body = self.form.body(self.model, request.state, request.questions) | self._extra | self._changed
        return {name: value for name, value in body.items() if value is not None or name not in self._changed}

    def explain(self, error: ServerError, body: Mapping[str, object]) -> JudgeError:
        """Return what to say of *error* where the server does not know this form of questions at all, else *error*."""
        if self.protocol == "logprobs":
            if rejected_parameter(error, body.keys()) not in ("logprobs", "top_logprobs"):
                return error
            todo = f"{NO_LOGPROBS}; some do with extra_body={{'reasoning_effort': 'none'}}"
        elif error.status not in _UNKNOWN_PATH:
            return error
        else:
            todo = f"(POST {self.form.path}): a model that chats is asked with DecisionJudge(protocol='logprobs')"
        return JudgeError("unavailable", f"{error.detail} {todo}", retryable=False)

    def change_parameters(self, error: ServerError, body: Mapping[str, object]) -> bool:
        """Leave out or change the parameter that *error* says the server does not take, of the *body* of a request.

        Return False if there is no such parameter, or the request is of no use without it.
        """
        found = _MOST_LOGPROBS.search(error.text) if error.status in _REJECTING and "logprobs" in error.text else None
        most = int(found[1]) if found is not None else 0
        listed = body.get("top_logprobs")
        culprit = rejected_parameter(error, body.keys()) if self.protocol == "logprobs" else None
        if isinstance(listed, int) and 0 < most < listed:
            self._changed["top_logprobs"] = most
        elif culprit in ("max_tokens", "temperature"):
            self._changed[culprit] = None
            if culprit == "max_tokens":
                self._changed.setdefault("max_completion_tokens", body.get("max_completion_tokens", _REPLY_TOKENS))
        else:
            return False
        return True

    def adapt(self, error: JudgeError, requests: Sequence[DecisionRequest]) -> bool:
        """Lower the size of requests where the *error* of the server says that *requests* are too large.

        Return False if it does not, or they cannot be smaller.
        """
        if not isinstance(error, ServerError):
            return False
        asked = max(len(request.questions) for request in requests)
        if error.reason == "truncated":
            longest = max(len(request.state) for request in requests)
            self.most_chars = min(self.most_chars, max(longest // 2, _FEWEST_CHARS))
            if self.most_chars < longest:  # by another call's error, perhaps, while this one was under way
                return True
            self.most_questions = min(self.most_questions, max(asked // 2, 1))  # questions fill the window, too
            return self.most_questions < asked
        found = _MOST_QUESTIONS.search(error.text) if error.status in _REJECTING else None
        most = int(found[1]) if found is not None else 0
        if 0 < most < asked:
            self.most_questions = most
            return True
        return False


class DecisionExchange:
    """Exchange with a decision model about one call: sends the requests and adds up their cost.

    Args:
        client: client of the model.
    """

    def __init__(self, client: DecisionClient) -> None:
        self._client = client
        self._price = client.price
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._models: dict[str, None] = {}
        self.cost = Cost()
        self.turn_chars = 0
        """Number of characters of earlier turns in each request."""
        self.attributes: dict[str, Plain] = {}
        """Attributes of the judgement about its requests."""

    @property
    def served_model(self) -> str:
        """Exact model that the server reported to have answered; several, joined, if it changed meanwhile."""
        return ",".join(sorted(self._models))

    async def ask_about(
        self, windows_of: Callable[[int], Iterable[Window]], chars: int
    ) -> tuple[dict[str, Answer], str]:
        """Ask the questions about a call, in smaller requests if the server says that they are too large.

        Args:
            windows_of: returns the windows of the call for the most characters of a request.
            chars: number of characters of the call.

        Returns:
            The answers by name of the question, and how they were asked: "whole", or "windowed" where not every
            question was asked about the whole call.
        """
        client = self._client
        # Most times that a call is asked about again with smaller requests.
        for _ in range(8):
            requests: list[DecisionRequest] = []
            for window in await beside_loop(chars, lambda: list(windows_of(client.most_chars))):
                requests += plan_requests([window], client.most_questions)
                await asyncio.sleep(0)  # a long call has many windows
            if not requests:
                return {}, "whole"
            try:
                answers = await self.ask(requests)
            except JudgeError as error:
                if not client.adapt(error, requests):
                    raise
                continue
            windows = len({request.state for request in requests if request.is_part})
            if windows:
                self.attributes["windows"] = windows
            return answers, "windowed" if windows else "whole"
        raise JudgeError(
            "truncated", f"{client.connection.server} rejects every size of request; see its log", retryable=False
        )

    async def ask(self, requests: Sequence[DecisionRequest]) -> dict[str, Answer]:
        """Send *requests*, at most four at a time, and return the answers by name of the question."""
        # The first one alone where every request repeats the state: the server then has it in its cache.
        ahead = 1 if self._client.form.most_questions == 1 else 0
        replies = [await self._post(request) for request in requests[:ahead]]
        replies += await run_concurrently([self._in_slot(request) for request in requests[ahead:]])
        if self.served_model:
            self.attributes[JUDGE_MODEL] = self.served_model
        pairs = zip(requests, replies, strict=True)
        return combine(pair for request, answers in pairs for pair in zip(request.questions, answers, strict=True))

    async def _in_slot(self, request: DecisionRequest) -> list[Answer]:
        async with self._slots:
            return await self._post(request)

    async def _post(self, request: DecisionRequest) -> list[Answer]:
        """Send one request, record its cost, and return an answer to each of its questions."""
        client = self._client
        # One request, at once: a request that is cancelled while it waits cannot be recorded later.
        record_cost(Cost(n_calls=1))
        body = client.body(request)
        try:
            reply = read_reply(await client.connection.post(client.form.path, body))
        except ServerError as error:
            self.cost += cost_of_rejection(self._price)
            if client.change_parameters(error, body):
                return await self._post(request)
            raise client.explain(error, body) from None
        except JudgeError:
            self.cost += Cost(n_calls=1)  # a reply that could not be read may have been charged for all the same
            raise
        usage = read_usage(reply)
        cost = cost_of_reply(usage, self._price)
        record_cost(replace(cost, n_calls=0))
        self.cost += cost
        self._note_reply(reply, request, 0 if usage is None else usage.input_tokens)
        answers = client.form.read(reply, request.questions)
        if "unparsable" in answers and client.protocol == "logprobs" and not client.was_unparsable:
            client.was_unparsable = True
            _log.warning(
                "decision model %s at %s answers a question neither with yes nor with no, so that its metrics have no "
                "score (unparsable): its likeliest words are %s. ragtrace doctor --gold shows how often",
                *(client.model, client.connection.server, likeliest_words(reply)),
            )
        return answers

    def _note_reply(self, reply: Mapping[str, Any], request: DecisionRequest, input_tokens: int) -> None:
        model, fingerprint = reply.get("model"), reply.get("system_fingerprint")
        if isinstance(model, str) and model:
            self._models[encodable(model)[:200]] = None
        if isinstance(fingerprint, str) and fingerprint:
            self.attributes[JUDGE_FINGERPRINT] = encodable(fingerprint)[:200]
        if self.turn_chars:
            tokens = round(self.turn_chars / len(request.state) * input_tokens)
            self.attributes[TURN_TOKENS] = cast("int", self.attributes.get(TURN_TOKENS, 0)) + tokens
        # Fewest input tokens at which a reply is seen to be about a part of the state, as for chat models.
        if 256 <= input_tokens < len(request.state) / _MOST_CHARS_A_TOKEN:
            self.attributes["judge_input_truncated"] = True
            if not self._client.reads_a_part:
                self._client.reads_a_part = True
                _log.warning(
                    "decision model %s at %s counted %d tokens of a request of %d characters: it seems to read only a "
                    "part of it. Its scores carry the attribute judge_input_truncated; enlarge its context window, or "
                    "lower DecisionJudge(max_input_chars=)",
                    *(self._client.model, self._client.connection.server, input_tokens, len(request.state)),
                )
