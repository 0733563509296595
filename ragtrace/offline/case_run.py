"""Run of an application on a dataset of test cases, with a comparison of the scores with an earlier run."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from ragtrace.core.cost import Cost
from ragtrace.core.errors import SettingsError
from ragtrace.core.types import Evaluation, Metric, RagCall, Result, Score
from ragtrace.offline.call_records import BadLine, CallFile, CallLine

if TYPE_CHECKING:
    from ragtrace.core.types import Judge
    from ragtrace.estimates.paired import PairedDifference

STORED: Final = "stored scores"
_CONFIDENCE: Final = 0.95
_SHOWN: Final = 5
_CHARS_PER_TOKEN: Final = 4

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


class Application(Protocol):
    """Interface of an application under test, which answers the queries of test cases."""

    @property
    def spec(self) -> str:
        """Path of the application's function, as `module:function`."""
        ...

    def answer(self, cases: Sequence[Case]) -> tuple[Mapping[int, RagCall], Mapping[int, str]]:
        """Call the application with the query of each test case.

        Returns:
            The recorded calls, and the traceback of each exception that the application raised, both by line.
        """
        ...


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
    application: Application
    judge_spec: str = "embedded"
    mode: str | None = None
    base_url: str | None = None
    metric_names: tuple[str, ...] | None = None
    baseline_path: Path | None = None
    """File with the results of an earlier run; None: the scores in the cases are the baseline."""
    out: Path | None = None
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
        asked = f"{n:,} cases, {self.application.spec} is called once for each; judge {self.evaluator}"
        if not self.judge_spec.startswith("openai:"):
            return asked
        from ragtrace.core.price import list_price

        texts = [each.call for each in self.cases]
        chars = sum(
            len(t.query or "") + len(t.answer or "") + sum(len(d.text) for d in t.contexts or ()) for t in texts
        )
        # Number of tokens assumed for the instructions in a request to an LLM judge.
        tokens = n * 1_500 + chars // _CHARS_PER_TOKEN
        server = self.base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        price = list_price(self.judge_spec.partition(":")[2], server)
        usd = "price not known" if price is None else f"about {tokens * price.input / 1e6:.2f} USD"
        return f"{asked}: about {n:,} requests, {tokens:,} tokens in ({usd}, without its replies)"

    @cached_property
    def outcome(self) -> RunOutcome:
        """Outcome of the run. Reading this property for the first time runs the application and the judge."""
        from ragtrace.offline.batch import evaluate

        calls, errors = self.application.answer(self.cases)
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
