"""Run of an application on a dataset of test cases, with a comparison of the scores with an earlier run."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import os
import sys
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from ragtrace.core.cost import Cost
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Evaluation, EvaluatorType, Judgement, Metric, RagCall, Result, Score
from ragtrace.offline.call_records import BadLine, CallFile, CallLine

if TYPE_CHECKING:
    from ragtrace.block import CallBlock
    from ragtrace.core.types import Judge
    from ragtrace.estimates.paired import PairedDifference

STORED: Final = "stored scores"
_CONFIDENCE: Final = 0.95
_SHOWN: Final = 5
_FLUSH_S: Final = 60.0
_CALLS_AT_ONCE: Final = 500
"""Number of calls of the application before the run waits until all are recorded, below the queue's capacity."""
_CHARS_PER_TOKEN: Final = 4
_PROMPT_TOKENS: Final = 1_500
"""Number of tokens assumed for the instructions in a request to an LLM judge."""

Verdict = Literal["worse", "better", "no clear change", "not compared"]


class KnownScore(NamedTuple):
    """Earlier score of a test case, or None, with the evaluator and the version of the metric."""

    value: float | None
    evaluator: str
    """Evaluator that gave the score, as `id@version`."""
    version: str
    """Version of the metric, not of the evaluator."""


@dataclass(frozen=True, slots=True)
class Case:
    """Test case of a dataset: a query, the stored contexts and answer, and the stored scores."""

    line: int
    id: str | int | float | None
    key: str
    """Key that identifies the case in other runs, too."""
    call: RagCall
    scores: Mapping[str, KnownScore]
    selected_by: tuple[str, ...]
    """Metrics by whose scores the calls of the dataset were selected."""


@dataclass(frozen=True, slots=True)
class MetricOutcome:
    """Outcome of one metric over all test cases, compared with the baseline."""

    metric: Metric
    mean: float | None
    """Mean score over the scored cases of this run; None: no case was scored."""
    scored: int
    unscored: Mapping[str, int]
    """Number of cases without a score, by the reason."""
    verdict: Verdict
    difference: PairedDifference | None
    why: str
    """Reason why there is no comparison, or a remark about the comparison; empty: neither."""
    worst: tuple[str, ...] = ()
    """Lines of text about the cases whose scores worsened most."""

    @property
    def failed(self) -> bool:
        """Whether the metric is clearly worse than in the baseline."""
        return self.verdict == "worse"


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """Outcome of a run on test cases: the application's exceptions, the metrics' outcomes, the cost of judging."""

    errors: Mapping[int, str]
    """Traceback of each case on which the application raised an exception, by the case's line number."""
    metrics: Mapping[str, MetricOutcome]
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """Run of an application on the test cases of a dataset, which starts when `outcome` is first read.

    Raises:
        SettingsError: the judge, a metric, the file of cases or the baseline cannot be used.
    """

    cases_path: Path
    app: str
    """Path of the application's function, as `module:function`."""
    judge_spec: str = "embedded"
    mode: str | None = None
    base_url: str | None = None
    metric_names: tuple[str, ...] | None = None
    baseline_path: Path | None = None
    """File with the results of an earlier run; None: the scores in the cases are the baseline."""
    out: Path | None = None
    workers: int = 1
    """Number of calls of the application at the same time."""
    judge: Judge = field(init=False)
    metrics: tuple[Metric, ...] = field(init=False)
    cases: tuple[Case, ...] = field(init=False)
    baseline: Mapping[str, Mapping[str, KnownScore]] = field(init=False)
    """Scores of the baseline, by case key and metric name."""

    def __post_init__(self) -> None:
        from ragtrace.evaluation.metric_selection import metrics_for
        from ragtrace.offline.judge_spec import judge_from_spec

        if os.getcwd() not in sys.path:  # `python -m` adds the directory, the script `ragtrace` does not
            sys.path.insert(0, os.getcwd())
        judge = judge_from_spec(self.judge_spec, mode=self.mode, base_url=self.base_url)
        cases = tuple(_read_cases(self.cases_path))
        if not cases:
            raise SettingsError(f"{self.cases_path} has no cases; `ragtrace dataset` makes some")
        known = {case.key: case.scores for case in cases}
        values = {
            "judge": judge,
            "metrics": metrics_for(judge, self.metric_names),
            "cases": cases,
            "baseline": known if self.baseline_path is None else _read_results(self.baseline_path),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def evaluator(self) -> str:
        """Identity of the judge, as id@version."""
        return f"{self.judge.id}@{self.judge.version}"

    def preview(self) -> str:
        """Return a text that announces the planned application calls, judge requests and cost."""
        n = len(self.cases)
        asked = f"{n:,} cases, {self.app} is called once for each; judge {self.evaluator}"
        if not self.judge_spec.startswith("openai:"):
            return asked
        from ragtrace.core.price import list_price

        texts = [each.call for each in self.cases]
        chars = sum(
            len(t.query or "") + len(t.answer or "") + sum(len(d.text) for d in t.contexts or ()) for t in texts
        )
        tokens = n * _PROMPT_TOKENS + chars // _CHARS_PER_TOKEN
        server = self.base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        price = list_price(self.judge_spec.partition(":")[2], server)
        usd = "price not known" if price is None else f"about {tokens * price.input / 1e6:.2f} USD"
        return f"{asked}: about {n:,} requests, {tokens:,} tokens in ({usd}, without its replies)"

    @cached_property
    def outcome(self) -> RunOutcome:
        """Outcome of the run. Reading this property for the first time runs the application and the judge."""
        from ragtrace.offline.batch import evaluate

        calls, errors = _Application(self.app, self.workers).answer(self.cases)
        answered = [case for case in self.cases if case.line in calls]
        judged = evaluate(
            [calls[case.line] for case in answered], metrics=list(self.metrics), judge=self.judge, progress=False
        )
        evaluations = {case.line: each.evaluation for case, each in zip(answered, judged, strict=True)}
        if self.out is not None:
            _write_results(self.out, self.cases, calls, evaluations, errors)
        found = {metric.name: self._compare(metric, evaluations) for metric in self.metrics}
        spent = judged.summary
        cost = Cost(spent.n_calls, spent.input_tokens, spent.output_tokens, None if spent.unpriced else spent.cost_usd)
        return RunOutcome(errors, found, cost)

    def _compare(self, metric: Metric, evaluations: Mapping[int, Evaluation]) -> MetricOutcome:
        """Compare *metric* with the baseline over the test cases that are scored in both."""
        results = {
            case.key: evaluations[case.line].results[metric.name] for case in self.cases if case.line in evaluations
        }
        scores = {key: result.value for key, result in results.items() if isinstance(result, Score)}
        reasons = Counter(result.reason for result in results.values() if not isinstance(result, Score))
        mean = sum(scores.values()) / len(scores) if scores else None
        outcome = MetricOutcome(metric, mean, len(scores), dict(reasons), "not compared", None, "")
        pairs, why = self._pairs(metric, scores)
        if why:
            return replace(outcome, why=why)
        return replace(outcome, **self._difference(metric, pairs, results))

    def _pairs(self, metric: Metric, scores: Mapping[str, float]) -> tuple[dict[str, tuple[float, float]], str]:
        """Return the pair of baseline score and new score of each test case that has both.

        If there are no such pairs, the second value says why.
        """
        if self.baseline_path is None and any(metric.name in case.selected_by for case in self.cases):
            # Regression to the mean: calls selected for a low score by a noisy judge score higher the second time.
            return {}, (
                "the calls were selected by this very score, from which a second one differs by that alone; compare "
                "with a run: --ragtrace-out, then --ragtrace-baseline"
            )
        before = {key: known[metric.name] for key, known in self.baseline.items() if metric.name in known}
        same = {
            key: known.value
            for key, known in before.items()
            if (known.evaluator, known.version) == (self.evaluator, metric.version) and known.value is not None
        }
        pairs = {key: (same[key], value) for key, value in scores.items() if key in same}
        if pairs:
            return pairs, ""
        others = {f"{known.evaluator}, version {known.version} of the metric" for known in before.values()}
        if others - {f"{self.evaluator}, version {metric.version} of the metric"}:
            by = "; ".join(sorted(others))
            return {}, f"the baseline was judged by {by}, this run by {self.evaluator}, version {metric.version}"
        return {}, "no case is scored both in the baseline and now"

    def _difference(
        self, metric: Metric, pairs: Mapping[str, tuple[float, float]], results: Mapping[str, Result]
    ) -> dict[str, Any]:
        from ragtrace.estimates.paired import least_pairs, paired_difference

        # Bonferroni correction: the probability that noise fails any metric is that for a single metric.
        confidence = 1.0 - (1.0 - _CONFIDENCE) / len(self.metrics)
        before, after = zip(*pairs.values(), strict=True)
        found = paired_difference(before, after, confidence=confidence)
        if found.low is None or found.high is None:
            why = f"{found.n} cases are scored in both runs; an interval needs {least_pairs(confidence)}"
            return {"difference": found, "why": why}
        low, high = (found.low, found.high) if metric.higher_is_better else (-found.high, -found.low)
        verdict: Verdict = "worse" if high < 0.0 else "better" if low > 0.0 else "no clear change"
        sign = 1.0 if metric.higher_is_better else -1.0
        fell = sorted((sign * (now - was), key) for key, (was, now) in pairs.items())
        lines = _worst_lines([key for change, key in fell[:_SHOWN] if change < 0], self.cases, pairs, results)
        return {"difference": found, "verdict": verdict, "worst": lines}


def _worst_lines(
    keys: Sequence[str], cases: Sequence[Case], pairs: Mapping[str, tuple[float, float]], results: Mapping[str, Result]
) -> tuple[str, ...]:
    by_key = {case.key: case for case in cases}
    lines: list[str] = []
    for key in keys:
        was, now = pairs[key]
        lines.append(f"line {by_key[key].line}: {was:.3g} -> {now:.3g}  {_shortened(by_key[key].call.query)}")
        result = results[key]
        claims = result.claims if isinstance(result, Score) else ()
        lines += [
            f"  {claim.support.replace('_', ' ')}: {_shortened(claim.text)}"
            for claim in claims
            if claim.checkable and claim.support not in ("supported", None)
        ][:2]
    return tuple(lines)


def _shortened(text: str | None) -> str:
    folded = " ".join((text or "").split())
    return folded if len(folded) <= 120 else f"{folded[:117]}..."


# --- files ------------------------------------------------------------------------------------------------------------


def _read_cases(path: Path) -> Iterator[Case]:
    """Yield the test cases in the file at *path*, each of which must have a query.

    Raises:
        SettingsError: a line cannot be read.
    """
    try:
        lines, raw = list(CallFile(path)), path.read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"the cases cannot be read: {error}") from None
    seen: Counter[str] = Counter()
    for line in lines:
        if isinstance(line, BadLine):
            raise SettingsError(f"line {line.number} of {path}: {line.error}")
        if not line.call.query:
            raise SettingsError(f"line {line.number} of {path} has no query; a case needs one")
        yield _case(line, json.loads(raw[line.number - 1].removeprefix(b"\xef\xbb\xbf")), seen)


def _case(line: CallLine, record: Mapping[str, Any], seen: Counter[str]) -> Case:
    digest = hashlib.blake2b(f"{line.call.workflow}\n{line.call.query}".encode("utf-8", "replace"), digest_size=16)
    seen[digest.hexdigest()] += 1
    scores, selected = record.get("scores"), record.get("selected_by")
    return Case(
        line.number,
        line.id,
        f"{digest.hexdigest()}-{seen[digest.hexdigest()]}",
        line.call,
        {
            name: KnownScore(each.get("score"), str(each.get("evaluator")), str(each.get("version")))
            for name, each in (cast("dict[str, Any]", scores) if isinstance(scores, dict) else {}).items()
        },
        tuple(map(str, cast("list[object]", selected))) if isinstance(selected, list) else (),
    )


def _read_results(path: Path) -> dict[str, dict[str, KnownScore]]:
    """Read the scores in a results file of an earlier run, by test case and metric.

    Raises:
        SettingsError: the file cannot be read, or is no file of results.
    """
    found: dict[str, dict[str, KnownScore]] = {}
    try:
        for text in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(text)
            found[row["case"]] = {
                name: KnownScore(each.get("score"), row["judge"], str(each.get("version")))
                for name, each in row["results"].items()
            }
    except OSError as error:
        raise SettingsError(f"the baseline cannot be read: {error}; --ragtrace-out makes one") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SettingsError(f"{path} is no baseline; name a file that --ragtrace-out has made") from None
    return found


def _write_results(
    path: Path,
    cases: Sequence[Case],
    calls: Mapping[int, RagCall],
    evaluations: Mapping[int, Evaluation],
    errors: Mapping[int, str],
) -> None:
    """Write the results of the run as rows that `ragtrace report` can read, each with its test case and answer."""
    from ragtrace.offline.score_rows import json_line, score_row
    from ragtrace.system.atomic_file import write_atomically

    rows: list[dict[str, Any]] = []
    for case in cases:
        known: dict[str, Any] = {"case": case.key, "query": case.call.query}
        if case.line in evaluations:
            row = score_row(case.line, case.id, evaluations[case.line])
            rows.append({**row, **known, "answer": calls[case.line].answer})
        else:
            error = errors.get(case.line, "").strip().rpartition("\n")[2]
            rows.append({"line": case.line, "id": case.id, "judge": "-", "results": {}, **known, "error": error})
    write_atomically(path, map(json_line, rows), mode=0o600)


# --- the application --------------------------------------------------------------------------------------------------


class _CallCollector:
    """Stand-in for a judge, which stores each RAG call by call id and gives no labels."""

    id, version = "collector", "1"
    type: EvaluatorType = "deterministic"

    def __init__(self) -> None:
        self.calls: dict[str, RagCall] = {}

    def offers(self, metric: Metric) -> bool:
        """Return whether *metric* is `consistency`, for which the collector receives every call."""
        return metric.name == "consistency"

    async def judge(self, call: RagCall) -> Judgement:
        """Store *call* under its call id."""
        from ragtrace.core.feedback import encode_call_id

        if call.span is not None:
            self.calls[encode_call_id(call.span)] = call
        return Judgement()


class _Application:
    """Application under test: a function that is called with each query, and recorded as a RAG call.

    Raises:
        SettingsError: there is no such function.
    """

    def __init__(self, spec: str, workers: int) -> None:
        self._spec, self._workers = spec, workers
        self._function = self._load(spec)
        parameters = _parameters(self._function)
        self._takes_contexts = "contexts" in parameters[1:]

    @staticmethod
    def _load(spec: str) -> Callable[..., object]:
        module, _, path = spec.partition(":")
        found: object
        try:
            found = import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError) as error:
            raise SettingsError(
                f"no function at {spec!r} ({error}); write --ragtrace-app module:function, importable from here"
            ) from None
        if not callable(found):
            raise SettingsError(f"{spec} is no function, got {type(found).__name__}")
        return found

    def answer(self, cases: Sequence[Case]) -> tuple[dict[int, RagCall], dict[int, str]]:
        """Call the application with the query of each test case.

        Returns:
            The recorded calls, and the traceback of each exception that the application raised, both by line.

        Raises:
            SettingsError: the application configures ragtrace itself while it answers, so that its calls are lost.
        """
        import ragtrace

        collector, ids, errors = _CallCollector(), dict[int, str](), dict[int, str]()
        with _without_settings():
            # Nothing of a test run may reach a backend, a history or a spool that the environment names.
            ragtrace.configure(
                exporter="none",
                screen=collector,
                metrics="consistency",
                telemetry=ragtrace.TelemetryOptions(set_global=False),
                enabled=True,
            )
        try:
            for first in range(0, len(cases), _CALLS_AT_ONCE):
                self._answer_some(cases[first : first + _CALLS_AT_ONCE], ids, errors)
                ragtrace.flush(_FLUSH_S)
        finally:
            ragtrace.shutdown()
        lost = [line for line in ids if ids[line] not in collector.calls and line not in errors]
        if lost:
            raise SettingsError(
                f"{len(lost)} calls of {self._spec} were not recorded, the first one on line {min(lost)}; the "
                "application must not call ragtrace.configure or ragtrace.shutdown while it answers: let it do so when "
                "its module is imported"
            )
        by_line = {case.line: case for case in cases}
        # The reference is about the question, so it holds for the new answer, too.
        return {
            line: replace(
                collector.calls[call], reference=by_line[line].call.reference, workflow=by_line[line].call.workflow
            )
            for line, call in ids.items()
            if line not in errors
        }, errors

    def _answer_some(self, cases: Sequence[Case], ids: dict[int, str], errors: dict[int, str]) -> None:
        if inspect.iscoroutinefunction(self._function) or inspect.isasyncgenfunction(self._function):
            asyncio.run(self._answer_all_async(cases, ids, errors))
        elif self._workers == 1:  # on the main thread, as some applications need that thread
            for case in cases:
                self._answer_one(case, ids, errors)
        else:
            with ThreadPoolExecutor(self._workers) as pool:
                for done in [pool.submit(self._answer_one, case, ids, errors) for case in cases]:
                    done.result()

    def _answer_one(self, case: Case, ids: dict[int, str], errors: dict[int, str]) -> None:
        with _recorded(case, ids, errors) as block:
            named = self._named_arguments(case, block)
            block.answered(_read_fully(self._function(case.call.query, **named)))

    async def _answer_all_async(self, cases: Sequence[Case], ids: dict[int, str], errors: dict[int, str]) -> None:
        places = asyncio.Semaphore(self._workers)

        async def answer_one(case: Case) -> None:
            async with places:
                with _recorded(case, ids, errors) as block:
                    found: Any = self._function(case.call.query, **self._named_arguments(case, block))
                    if inspect.isasyncgen(found):
                        block.answered(_join_chunks([piece async for piece in found]))
                    else:
                        block.answered(await cast("Awaitable[object]", found))

        await asyncio.gather(*map(answer_one, cases))

    def _named_arguments(self, case: Case, block: CallBlock) -> dict[str, object]:
        """Return the stored contexts as a keyword argument, or {} for an application that retrieves its own."""
        if not self._takes_contexts:
            return {}
        if case.call.contexts is not None:
            block.retrieved(case.call.contexts)
        return {"contexts": [document.text for document in case.call.contexts or ()]}


@contextmanager
def _recorded(case: Case, ids: dict[int, str], errors: dict[int, str]) -> Generator[CallBlock, None, None]:
    """Record a `with` block as the RAG call of the test case *case*, and store any exception instead of raising it."""
    import ragtrace

    try:
        with ragtrace.call(case.call.query, name="case") as block:
            ids[case.line] = ragtrace.call_id() or ""
            yield block
    except Exception:
        errors[case.line] = traceback.format_exc()


@contextmanager
def _without_settings() -> Generator[None, None, None]:
    """Hide ragtrace's environment variables while ragtrace is configured for the run."""
    hidden = {name: value for name, value in os.environ.items() if name.startswith("RAGTRACE_")}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def _parameters(function: Callable[..., object]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a callable written in C may have no signature
        return []


def _read_fully(found: object) -> object:
    """Return the application's result, with a generator read to its end."""
    return _join_chunks(list(cast("Iterator[object]", found))) if inspect.isgenerator(found) else found


def _join_chunks(pieces: Sequence[object]) -> object:
    """Join the chunks of a stream to a text, or return the last chunk if not all of them are texts."""
    texts = [piece for piece in pieces if isinstance(piece, str)]
    return "".join(texts) if len(texts) == len(pieces) else pieces[-1]
