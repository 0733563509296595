"""Traffic of guarded functions of all kinds, with judges of all tempers, ended in every way, and its accounts.

Everything is drawn from a seed. Each piece of an answer is an object of its own, so that it is known by identity what
has left a guard; the judge notes when it has found which text to be good.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple, cast

from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import ragtrace
from ragtrace.core import semconv
from ragtrace.core.types import JudgedTexts, Judgement, RagCall, Signals
from ragtrace.testing import FakeJudge
from ragtrace.types import GuardBlocked
from tests.support.guards import BAD
from tests.support.watched import GOOD, search

KINDS: Final = ("sync", "async", "generator", "async generator", "returned stream")
ENDS: Final = ("read", "left", "closed", "cancelled", "failed")
TEMPERS: Final = ("quick", "slow", "hangs", "garbage", "dies")
FALLBACK: Final = "no answer"
_THREADS: Final = 8
_TASKS: Final = 16
_USUAL: Final = 0.95
"""Share of calls for which the judge is of its usual temper; that of the others is drawn from all."""


class Answered(NamedTuple):
    """What an outlet says of one guarded call."""

    workflow: str
    verdict: str
    action: str
    reason: str


class Outlets:
    """Exporters that keep what spans and events say of guards, by trace."""

    def __init__(self) -> None:
        self.spans: dict[str, Answered] = {}
        self.events: dict[str, Answered] = {}
        self.roots: Counter[str] = Counter()
        """Number of root spans by workflow, with and without a verdict."""
        self.statuses: dict[str, str] = {}
        """Evaluation status by question."""
        self.twice: list[str] = []
        self._metrics = InMemoryMetricReader()
        spans, events = _Spans(), _Events()
        spans.outlets = events.outlets = self
        self.signals = Signals(spans=spans, metrics=self._metrics, logs=events)

    def note(self, found: dict[str, Answered], trace: int, workflow: str, attributes: Mapping[str, Any]) -> None:
        """Note what an outlet says of the call of a trace."""
        names = semconv.GUARD_VERDICT, semconv.GUARD_ACTION, semconv.GUARD_REASON
        verdict, action, reason = (str(attributes.get(name, "")) for name in names)
        key = f"{trace:032x}"
        if key in found:
            self.twice.append(key)
        found[key] = Answered(workflow, verdict, action, reason)

    def counted(self) -> Counter[tuple[str, str, str]]:
        """Return the numbers of the counter by workflow, verdict and action."""
        data, found = self._metrics.get_metrics_data(), Counter[tuple[str, str, str]]()
        for resource in data.resource_metrics if data is not None else ():
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                for point in metric.data.data_points if metric.name == semconv.METRIC_GUARD_RESULTS else ():
                    about: Any = point.attributes
                    keys = semconv.WORKFLOW_NAME, semconv.GUARD_VERDICT, semconv.GUARD_ACTION
                    found[tuple(str(about[key]) for key in keys)] = cast("Any", point).value  # type: ignore[index]
        return found


class _Spans(SpanExporter):
    outlets: Outlets

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            attributes, context = span.attributes or {}, span.context
            if semconv.EVAL_STATUS in attributes and context is not None:
                workflow = str(attributes.get(semconv.WORKFLOW_NAME))
                self.outlets.roots[workflow] += 1
                texts: JudgedTexts | None = getattr(span, "judged_texts", None)
                self.outlets.statuses[(texts and texts.query) or ""] = str(attributes[semconv.EVAL_STATUS])
                if semconv.GUARD_VERDICT in attributes:
                    self.outlets.note(self.outlets.spans, context.trace_id, workflow, attributes)
        return SpanExportResult.SUCCESS


class _Events(LogRecordExporter):
    outlets: Outlets

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        for each in batch:
            record, attributes = each.log_record, each.log_record.attributes or {}
            if record.event_name == semconv.EVENT_GUARD:
                workflow = str(attributes.get(semconv.WORKFLOW_NAME))
                self.outlets.note(self.outlets.events, record.trace_id or 0, workflow, attributes)
        return LogRecordExportResult.SUCCESS

    def shutdown(self) -> None: ...

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        return True


class MoodyJudge(FakeJudge):
    """Judge of the temper that the question names, which notes when it has found which text to be good.

    Args:
        slow_s: seconds that a slow one takes.
    """

    def __init__(self, slow_s: float) -> None:
        super().__init__(GOOD)
        self.limits = ragtrace.JudgeLimits(timeout=4 * slow_s, concurrency=64)
        self._slow_s = slow_s
        self.passed: dict[str, float] = {}

    async def judge(self, call: RagCall) -> Judgement:
        temper, text = (call.query or "").split()[-1], call.answer or ""
        if temper == "slow":
            await asyncio.sleep(self._slow_s)
        if temper == "hangs":
            await asyncio.Event().wait()
        if temper == "dies":
            raise ConnectionResetError
        if temper == "garbage":
            return cast("Judgement", "garbage")
        if "Mars" in text:
            return BAD
        self.passed[text] = perf_counter()
        return GOOD


class Delta:
    """Piece of a class whose text nobody finds."""

    def __init__(self, payload: str) -> None:
        self.payload = payload


class Ending(Exception):  # noqa: N818 - it ends a stream
    """Exception of a guarded function."""


@dataclass
class Plan:
    """One guarded call: what its function gives, how its reader ends it, and what the reader has got."""

    number: int
    kind: str
    end: str
    temper: str
    sentences: list[str]
    pieces: list[object]
    """Objects that the function gives."""
    covers: dict[int, frozenset[int]]
    """Numbers of the sentences that have text in a piece, by the identity of the piece."""
    at: int
    """Number of the piece at which the call ends, unless it is read."""
    delay: float
    """Seconds after which its task is cancelled."""
    guard: ragtrace.Guard
    got: list[tuple[object, float]] = field(default_factory=list[tuple[object, float]])
    """Objects that have left, each with its time."""
    added: float = 0.0
    """Seconds for which the reader has waited, after the function has given what it was asked for."""
    begun = False
    """Whether the function has run."""
    answered = 0
    """Number of times that it has returned; 2: it was retried."""

    @property
    def question(self) -> str:
        """Question of the call; the last word is for the judge."""
        return f"What is true of number {self.number}? {self.temper}"

    @property
    def workflow(self) -> str:
        """Name of the guarded function."""
        guard = self.guard
        return f"{self.kind}, {guard.stream or 'plain'}, {guard.action}, {guard.on_error}"

    @property
    def whole(self) -> str:
        """The whole answer."""
        return "".join(self.sentences)

    def leaked(self, passed: Mapping[str, float]) -> list[object]:
        """Return the objects that left a closed guard before the judge had found their text to be good."""
        guard, found = self.guard, list[object]()
        if guard.on_error != "closed" or guard.action not in ("raise", "replace"):
            return found
        for piece, at in self.got:
            covered = self.covers.get(id(piece))
            if covered is None:
                continue
            by_sentence = guard.stream == "sentence"
            texts = [self.sentences[each].strip() for each in covered] if by_sentence else [self.whole]
            if any(passed.get(text, at + 1) > at for text in texts):
                found.append(piece)
        return found


def plans(kind: str, calls: int, seed: int, temper: str, budget_ms: float) -> Iterator[Plan]:
    """Draw the calls of one kind of function."""
    draw = random.Random(f"{seed} {kind}")
    for number in range(calls):
        its_temper = temper if draw.random() < _USUAL else draw.choice(TEMPERS)
        identity = f"{KINDS.index(kind)}{number:06}"
        sentences = [
            f"Fact {identity} {each} is {'on Mars' if draw.random() < 0.1 else 'true'}."
            for each in range(draw.randint(1, 4))
        ]
        sentences = [f"{each} " for each in sentences[:-1]] + sentences[-1:]
        pieces, covers = _cut(draw, sentences) if "sync" not in kind and kind != "async" else _whole(draw, sentences)
        yield Plan(
            number=int(identity),
            kind=kind,
            end=draw.choice(ENDS),
            temper=its_temper,
            sentences=sentences,
            pieces=pieces,
            covers=covers,
            at=draw.randrange(len(pieces) + 1),
            delay=draw.random() * budget_ms / 1000 * 1.5,
            guard=_guard(draw, kind, budget_ms),
        )


def _guard(draw: random.Random, kind: str, budget_ms: float) -> ragtrace.Guard:
    streams = kind not in ("sync", "async")
    stream = draw.choice(("after", "sentence", "sentence", "all")) if streams else None
    actions = ("annotate",) if stream == "after" else ("annotate", "raise", "replace", *(() if streams else ("retry",)))
    action = draw.choice(actions)
    options: dict[str, Any] = {"fallback": lambda _: FALLBACK} if action == "replace" else {}
    if action == "retry":
        options["idempotent"] = True
    if stream is not None:
        options["stream"] = stream
    on_error = draw.choice(("open", "closed"))
    return ragtrace.Guard("faithfulness", below=0.75, budget_ms=budget_ms, action=action, on_error=on_error, **options)


def _whole(draw: random.Random, sentences: list[str]) -> tuple[list[object], dict[int, frozenset[int]]]:
    text = "".join(sentences)
    answer: object = draw.choice((lambda: str(text), lambda: {"answer": text}, lambda: Delta(text)))()
    return [answer], {id(answer): frozenset(range(len(sentences)))}


def _cut(draw: random.Random, sentences: list[str]) -> tuple[list[object], dict[int, frozenset[int]]]:
    """Cut the sentences of an answer at random places into pieces of one or more forms, some of them without text."""
    text, forms = "".join(sentences), draw.choice(("text", "record", "text record", "unknown", "late"))
    owner = [number for number, sentence in enumerate(sentences) for _ in sentence]
    cuts = sorted({0, len(text), *(draw.randrange(len(text)) for _ in range(draw.randint(1, 8)))})
    pieces, covers = list[object](), dict[int, frozenset[int]]()

    def add(piece: object, begin: int, end: int) -> None:
        pieces.append(piece)
        covers[id(piece)] = frozenset(owner[begin:end])

    for begin, end in itertools.pairwise(cuts):
        if draw.random() < 0.2:  # without text: it belongs to the text before it
            add({"usage": {"output_tokens": end}}, max(0, begin - 1), max(1, begin))
        part, form = text[begin:end], draw.choice(forms.split())
        if form == "unknown" or (form == "late" and begin > len(text) / 2):
            add(Delta(part), begin, end)
        elif form != "record" and len(part) > 1:  # Python has one object for all texts of that letter
            add(part, begin, end)
        else:
            add({"content": part}, begin, end)
    return pieces, covers


class Returned:
    """Iterator of a class of its own, which a function returns."""

    def __init__(self, source: Generator[object, None, None]) -> None:
        self._source = source

    def __iter__(self) -> Returned:
        return self

    def __next__(self) -> object:
        return next(self._source)

    def __enter__(self) -> Returned:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._source.close()


class AsyncReturned:
    """The same, to be read by `async for`."""

    def __init__(self, source: AsyncGenerator[object, None]) -> None:
        self._source = source

    def __aiter__(self) -> AsyncReturned:
        return self

    async def __anext__(self) -> object:
        return await anext(self._source)

    async def close(self) -> None:
        await self._source.aclose()


class Traffic:
    """Guarded functions of one kind, and the readers of their answers.

    Args:
        kind: one of `KINDS`.
        found: the calls.
    """

    def __init__(self, kind: str, found: Sequence[Plan]) -> None:
        self.kind, self.plans = kind, {plan.question: plan for plan in found}
        self._functions: dict[tuple[str, bool], Any] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Make all calls, several at a time."""
        threaded = [plan for plan in self.plans.values() if not self._is_async(plan)]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._read, threaded))
        asyncio.run(self._read_all([plan for plan in self.plans.values() if self._is_async(plan)]))
        gc.collect()

    def _is_async(self, plan: Plan) -> bool:
        return "async" in self.kind or (self.kind == "returned stream" and plan.number % 2 == 1)

    # --- functions of the application ---------------------------------------------------------------------------------

    def _function(self, plan: Plan) -> Any:
        key = plan.workflow, self._is_async(plan)
        with self._lock:
            if key not in self._functions:
                self._functions[key] = ragtrace.trace(name=plan.workflow, guard=plan.guard)(self._undecorated(plan))
            return self._functions[key]

    def _undecorated(self, plan: Plan) -> Any:
        if self.kind == "sync":
            return self._answer
        if self.kind == "generator":
            return self._yield
        if self.kind == "async generator":
            return self._yield_async
        if self.kind == "async":
            return self._answer_async
        if self._is_async(plan):
            return self._returned_async
        return self._returned

    def _returned(self, question: str) -> Any:
        self.plans[question].begun = True
        return (Returned if self.plans[question].number % 4 else lambda source: map(_same, source))(
            self._yield(question)
        )

    def _returned_async(self, question: str) -> AsyncReturned:
        self.plans[question].begun = True
        return AsyncReturned(self._yield_async(question))

    def _begin(self, question: str) -> Plan:
        plan = self.plans[question]
        plan.begun = True
        search(question)
        return plan

    def _fail(self, plan: Plan, number: int) -> None:
        if number == plan.at and (plan.end == "failed" or (plan.end == "cancelled" and not self._is_async(plan))):
            raise Ending if plan.end == "failed" else KeyboardInterrupt

    def _answer(self, question: str) -> object:
        plan = self._begin(question)
        self._fail(plan, 0)
        plan.answered, plan.added = plan.answered + 1, -perf_counter()
        return plan.pieces[0]

    async def _answer_async(self, question: str) -> object:
        plan = self._begin(question)
        await asyncio.sleep(0)
        self._fail(plan, 0)
        plan.answered, plan.added = plan.answered + 1, -perf_counter()
        return plan.pieces[0]

    def _yield(self, question: str) -> Generator[object, None, None]:
        plan = self._begin(question)
        for number, piece in enumerate(plan.pieces):
            self._fail(plan, number)
            yield piece
        self._fail(plan, len(plan.pieces))

    async def _yield_async(self, question: str) -> AsyncGenerator[object, None]:
        for piece in self._yield(question):
            await asyncio.sleep(0)
            yield piece

    # --- readers ------------------------------------------------------------------------------------------------------

    def _read(self, plan: Plan) -> None:
        function = self._function(plan)
        try:
            if self.kind == "sync":
                plan.got.append((function(plan.question), perf_counter()))
            else:
                self._read_stream(plan, function(plan.question))
        except (GuardBlocked, Ending, KeyboardInterrupt):
            pass
        finally:
            plan.added += perf_counter() if self.kind == "sync" else 0.0

    def _read_stream(self, plan: Plan, stream: Any) -> None:
        ends_early = plan.end in ("left", "closed")
        while not (ends_early and len(plan.got) == plan.at):
            asked = perf_counter()
            try:
                piece = next(stream)
            except StopIteration:
                return
            finally:
                plan.added += perf_counter() - asked
            plan.got.append((piece, perf_counter()))
        if plan.end == "closed" and isinstance(stream, Returned) and plan.number % 3:
            with stream:
                pass
        elif plan.end == "closed" and hasattr(stream, "close"):
            stream.close()

    async def _read_all(self, found: Sequence[Plan]) -> None:
        places = asyncio.Semaphore(_TASKS)

        async def one(plan: Plan) -> None:
            async with places:
                task = asyncio.ensure_future(self._read_in_task(plan))
                if plan.end == "cancelled":
                    asyncio.get_running_loop().call_later(plan.delay, task.cancel)
                await asyncio.wait({task})
                if not task.cancelled() and (error := task.exception()) is not None:
                    assert isinstance(error, (GuardBlocked, Ending)), error

        await asyncio.gather(*map(one, found))

    async def _read_in_task(self, plan: Plan) -> None:
        answer = self._function(plan)(plan.question)
        if self.kind != "async":
            await self._read_async_stream(plan, answer)
        elif plan.end == "left":
            answer.close()
        elif plan.end == "closed":
            try:
                for _ in range(2):  # into the function, and into the wait for the verdict
                    answer.send(None)
            except StopIteration as stop:  # nobody had to wait
                plan.got.append((stop.value, perf_counter()))
            finally:
                answer.close()
        else:
            try:
                plan.got.append((await answer, perf_counter()))
            finally:
                plan.added += perf_counter()

    async def _read_async_stream(self, plan: Plan, stream: Any) -> None:
        ends_early = plan.end in ("left", "closed")
        while not (ends_early and len(plan.got) == plan.at):
            asked = perf_counter()
            try:
                piece = await anext(stream)
            except StopAsyncIteration:
                return
            finally:
                plan.added += perf_counter() - asked
            plan.got.append((piece, perf_counter()))
        if plan.end == "closed":
            await (stream.aclose if hasattr(stream, "aclose") else stream.close)()


def _same(piece: object) -> object:
    return piece


@dataclass
class Accounts:
    """What became of all calls, and what each outlet says of it."""

    plans: list[Plan]
    outlets: Outlets
    history: dict[str, Answered]
    counted: Counter[tuple[str, str, str]]
    stats: Mapping[str, Any]
    passed: Mapping[str, float]

    def differences(self) -> list[str]:
        """Return what is wrong, one sentence each."""
        outlets, found = self.outlets, list[str]()
        rows = {"spans": outlets.spans, "events": outlets.events, "history": self.history}
        for name, said in rows.items():
            if said != outlets.spans:
                differing = {key: (said.get(key), outlets.spans.get(key)) for key in said.keys() ^ outlets.spans.keys()}
                differing |= {
                    key: (said[key], outlets.spans[key])
                    for key in said
                    if said[key] != outlets.spans.get(key, said[key])
                }
                found.append(f"{name} and spans differ in {len(differing)} calls: {list(differing.values())[:3]}")
        by_span = Counter((each.workflow, each.verdict, each.action) for each in outlets.spans.values())
        if self.counted != by_span:
            found.append(f"the metric and the spans differ: {self.counted - by_span} and {by_span - self.counted}")
        for workflow, tally in self.stats.items():
            spans = [each for each in outlets.spans.values() if each.workflow == workflow]
            verdicts, actions = Counter(each.verdict for each in spans), Counter(each.action for each in spans)
            if (tally.calls, tally.verdicts, tally.actions) != (len(spans), verdicts, actions):
                found.append(f"stats and spans differ: {workflow}: {tally}, {verdicts}, {actions}")
        found += [f"twice: {outlets.twice[:3]}"] if outlets.twice else []
        return found + self._missing() + self._leaks()

    def _missing(self) -> list[str]:
        """Compare the numbers of verdicts and of root spans with those of the calls that were made."""
        verdicts = Counter(each.workflow for each in self.outlets.spans.values())
        answers, begun = Counter[str](), Counter[str]()
        for plan in self.plans:
            begun[plan.workflow] += plan.begun
            answers[plan.workflow] += plan.begun if plan.guard.stream is not None else plan.answered
        retried = Counter(each.workflow for each in self.outlets.spans.values() if each.action == "retried")
        found = [
            f"{answers[key]} answers and {verdicts[key]} verdicts: {key}"
            for key in answers
            if answers[key] != verdicts[key]
        ]
        roots = self.outlets.roots
        return found + [
            f"{begun[key]} calls, {retried[key]} retried, and {roots[key]} root spans: {key}"
            for key in begun
            if roots[key] != begun[key] + retried[key]
        ]

    def _leaks(self) -> list[str]:
        leaked = [(plan, found) for plan in self.plans if (found := plan.leaked(self.passed))]
        return [f"{len(leaked)} closed guards leak, such as {plan}: {found}" for plan, found in leaked[:1]]

    def added(self, kind: str) -> list[float]:
        """Return the seconds that guards have added to the answers of a kind that were read to their end, sorted."""
        read = [each for each in self.plans if (each.kind, each.end) == (kind, "read") and each.guard.action != "retry"]
        return sorted(each.added for each in read)


def run_traffic(calls: int, *, seed: int, temper: str, budget_ms: float, store: Path, wait_s: float = 60.0) -> Accounts:
    """Make *calls* guarded calls of each kind, and return their accounts. ragtrace is shut down afterwards.

    Args:
        calls: calls of each kind.
        seed: all is drawn from it.
        temper: the judge's usual temper, one of `TEMPERS`.
        budget_ms: budget of the guards in milliseconds; a slow judge takes one and a half times as long.
        store: path of the history.
        wait_s: seconds that the flush at the end may take.
    """
    outlets, judge = Outlets(), MoodyJudge(budget_ms / 1000 * 1.5)
    ragtrace.configure(exporter=outlets.signals, screen=None, judge=judge, store=store)
    made = {kind: list(plans(kind, calls, seed, temper, budget_ms)) for kind in KINDS}
    gc.collect()
    gc.freeze()  # no answer waits while Python looks through what is here anyway
    for kind, found in made.items():
        Traffic(kind, found).run()
        assert ragtrace.flush(wait_s)
    gc.unfreeze()
    stats, counted = dict(ragtrace.stats().guards), outlets.counted()
    ragtrace.shutdown(wait_s)
    with closing(sqlite3.connect(store)) as database:
        rows = database.execute(
            "SELECT hex(identity), workflow, verdict, action, reason FROM guard_verdicts JOIN calls USING (number)"
        )
        history = {identity[:32].lower(): Answered(*said) for identity, *said in rows}
    return Accounts([*itertools.chain(*made.values())], outlets, history, counted, stats, judge.passed)


def paid_and_dropped(calls: int, *, seed: int, after_s: float, shutdown_s: float = 60.0) -> tuple[int, list[str]]:
    """Shut ragtrace down in the middle of guarded calls, and say what became of those that the judge was asked about.

    A call whose function was still running is not judged: it is counted as dropped.

    Args:
        calls: calls of each kind, all of which are read to their end.
        seed: all is drawn from it.
        after_s: seconds after which the shutdown begins.
        shutdown_s: seconds that it may take.

    Returns:
        The number of calls that the judge was asked about, and what is wrong, one sentence each.
    """
    outlets, judge = Outlets(), MoodyJudge(0.03)
    asked, judging = set[str](), judge.judge

    async def judge_and_note(call: RagCall) -> Judgement:
        asked.add(call.query or "")
        return await judging(call)

    vars(judge).update(judge=judge_and_note, limits=ragtrace.JudgeLimits(timeout=30.0, concurrency=64))
    ragtrace.configure(exporter=outlets.signals, screen=None, judge=judge)
    running = list[threading.Thread]()
    for kind in KINDS:
        found = list(plans(kind, calls, seed, "slow", 2_000.0))
        for plan in found:
            plan.end, plan.temper = "read", plan.temper if plan.temper in ("quick", "slow") else "slow"
        running.append(threading.Thread(target=Traffic(kind, found).run))
    for thread in running:
        thread.start()
    running[0].join(after_s)
    began = perf_counter()
    is_complete = ragtrace.shutdown(shutdown_s)
    took = f"after a shutdown of {perf_counter() - began:.1f} s"
    for thread in running:
        thread.join()
    lost = {question: outlets.statuses.get(question, "no span") for question in asked}
    lost = {question: status for question, status in lost.items() if status not in ("ok", "partial", "not_applicable")}
    wrong = [f"{len(lost)} of {len(asked)} paid calls are lost {took}: {list(lost.items())[:3]}"] if lost else []
    if not is_complete and not any(each.dropped for each in ragtrace.stats().evaluators.values()):
        wrong.append(f"incomplete, though no call was dropped, {took}")
    return len(asked), wrong
