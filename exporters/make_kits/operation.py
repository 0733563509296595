"""Panels on the operation: which calls are scored, what judging takes, how fast the application is."""

from __future__ import annotations

from grafana_foundation_sdk.builders import prometheus

from exporters.make_kits.names import (
    CACHED,
    CALLS,
    EVALUATOR,
    HELD,
    JUDGE_COST,
    JUDGE_SECONDS,
    JUDGE_TOKENS,
    JUDGED,
    OPERATION_SECONDS,
    OUTCOME,
    QUEUE,
    REASON,
    WORKFLOW,
    WORKFLOW_SECONDS,
)
from exporters.make_kits.panels import CALLS_A_SECOND, HERE, RATE, SERVICE, Panel, fixed, lines, query, stacked, style
from ragtrace.core import semconv
from ragtrace_exporters.openmetrics.naming import label_name

_WHO = f"{{{{{EVALUATOR}}}}}"
_ONE = f'{SERVICE}, {EVALUATOR}="$evaluator"'


def calls() -> list[Panel]:
    """What became of the calls, for one evaluator at a time: two evaluators look at the same calls."""
    ours = f'{HERE}, {EVALUATOR}="$evaluator"'
    offered = f'{CALLS}{{{ours}, {OUTCOME}="offered"}}'
    fates = f'{CALLS}{{{ours}, {OUTCOME}!="offered"}}'
    reasons = f'{CALLS}{{{ours}, {REASON}!="", {REASON}!="not_sampled"}}'
    renamed = f"sum by ({REASON}, {OUTCOME}) (rate({reasons}{RATE}))"
    renamed = f'label_replace({renamed}, "{OUTCOME}", "scored, no verdict", "{OUTCOME}", "scored")'
    renamed = f'label_replace({renamed}, "{OUTCOME}", "left out", "{OUTCOME}", "sampled_out")'
    by_outcome = stacked(
        "Calls by outcome: $evaluator",
        "What became of every call for the evaluator chosen above; the line is all calls, which the colours add up to. "
        "scored: decided. sampled_out: left out on purpose, the rest stands for it. partial, failed: the judge gave few "
        "or no scores. dropped: lost for want of room. All evaluators see the same calls: do not add them up.",
        query(f"sum by ({OUTCOME}) (rate({fates}{RATE}))", f"{{{{{OUTCOME}}}}}"),
        query(f"sum(rate({offered}{RATE}))", "all calls", ref="B"),
        unit=CALLS_A_SECOND,
    )
    alone = style(
        custom__stacking={"mode": "none", "group": "B"},
        custom__fillOpacity=0,
        custom__lineWidth=2,
        color=fixed("text"),
    )
    colours = {"scored": "green", "sampled_out": "blue", "partial": "yellow", "failed": "red", "dropped": "purple"}
    for outcome, colour in colours.items():
        by_outcome = by_outcome.override_by_name(outcome, style(color=fixed(colour)))
    why = lines(
        "No score, by reason: $evaluator",
        "Why calls have no score, those aside that were not drawn (not_sampled: sampled_out beside this). failed: the "
        "judge's failures, such as timeout. left out: by policy, such as budget. scored, no verdict: looked at, but "
        "the metrics do not apply (abstained: the answer declines; no_claims: it states nothing). None of these calls is "
        "in an estimate, neither as good nor as bad.",
        query(renamed, f"{{{{{OUTCOME}}}}}: {{{{{REASON}}}}}"),
        unit=CALLS_A_SECOND,
        span=12,
    )
    return [by_outcome.override_by_name("all calls", alone), why]


def judges() -> list[Panel]:
    """Time, work, tokens, money and failures."""
    kind = label_name(semconv.TOKEN_TYPE)
    failed = f'sum by ({EVALUATOR}, {REASON}) (rate({CALLS}{{{SERVICE}, {OUTCOME}="failed"}}{RATE}))'
    cost = f"sum by ({EVALUATOR}) (rate({JUDGE_COST}{{{SERVICE}}}{RATE})) * 3600"
    return [
        lines(
            "Time to judge a call: $evaluator",
            "Median and p95 (95 of 100 calls take no longer) of calls that were really judged, not from memory; under 10 ms "
            "it is not resolved. A gap: nothing was judged. None of it is on the application's time.",
            query(_judging(0.5), "median", exemplars=True),
            query(_judging(0.95), "p95", ref="B"),
            unit="s",
            span=5,
        ),
        lines(
            "Judged: $evaluator",
            "Calls a second that the evaluator judged. from memory: the same question, passages and answer had been "
            "judged before, so that nobody was asked: no time, no tokens, no cost.",
            *_judged(),
            unit=CALLS_A_SECOND,
            span=5,
        ),
        lines(
            "Judge tokens per minute",
            "Tokens that the judge read (input) and wrote (output), at the rate of the moment. 0: nobody was asked, see "
            "the panel before. No line: no judge that counts tokens.",
            query(f"60 * sum by ({EVALUATOR}, {kind}) (rate({JUDGE_TOKENS}{{{SERVICE}}}{RATE}))",
                  f"{_WHO} {{{{{kind}}}}}"),
            span=5,
        ),
        lines(
            "Judge cost per hour",
            "At the rate of the moment, in US dollars, by the prices that ragtrace was given.",
            query(cost, _WHO),
            unit="currencyUSD",
            span=4,
        ),
        lines(
            "Judge failures per second",
            "Calls a second without a score because the judge failed, by reason. No line: no failure since the start.",
            query(failed, f"{_WHO} {{{{{REASON}}}}}"),
            span=5,
        ),
    ]  # fmt: skip


def _judging(share: float) -> str:
    asked = f'{JUDGE_SECONDS}{{{_ONE}, {CACHED}=""}}'
    return f"histogram_quantile({share}, sum by (le) (rate({asked}{RATE})))"


def _judged() -> list[prometheus.Dataquery]:
    def counted(matcher: str) -> str:
        return f"sum(rate({JUDGED}{{{_ONE}{matcher}}}{RATE}))"

    fresh, again = counted(f', {CACHED}=""'), counted(f', {CACHED}!=""')
    return [query(fresh, "judged"), query(f"{again} or 0 * {counted('')}", "from memory", ref="B")]


def application() -> list[Panel]:
    """What users wait for, and what waits for scores."""
    kind = label_name(semconv.OPERATION_NAME)
    whole = f"sum by (le, {WORKFLOW}) (rate({WORKFLOW_SECONDS}_bucket{{{HERE}}}{RATE}))"
    return [
        lines(
            "Mean answer time, and of its steps",
            "Mean of the whole call, by workflow, and of one retrieval and one generation (chat). Means, so that steps "
            "add up to the whole where each runs once and one after the other; the rest is the application's own.",
            query(_mean(WORKFLOW_SECONDS, WORKFLOW, HERE), f"{{{{{WORKFLOW}}}}} (whole)", exemplars=True),
            query(_mean(OPERATION_SECONDS, kind, SERVICE), f"one {{{{{kind}}}}}", ref="B"),
            unit="s",
        ),
        lines(
            "Answer time: p95, no finer than 10 ms",
            "95 of 100 calls of the workflow take no longer. Read off the histogram's buckets, so it is exact to a bucket "
            "only: under 10 ms it says no more than that.",
            query(f"histogram_quantile(0.95, {whole})", f"{{{{{WORKFLOW}}}}} p95", exemplars=True),
            unit="s",
        ),
        lines(
            "Waiting for scores",
            "Calls that wait to be scored and spans that wait for their scores, at the moment of each scrape. A queue that "
            "keeps growing ends in dropped calls: lower the sampling rate, or give the judge more concurrency.",
            query(f"sum({QUEUE}{{{SERVICE}}})", "calls in the queue"),
            query(f"sum({HELD}{{{SERVICE}}})", "spans held", ref="B"),
        ),
    ]


def _mean(seconds: str, by: str, where: str) -> str:
    total, count = (f"sum by ({by}) (rate({seconds}_{end}{{{where}}}{RATE}))" for end in ("sum", "count"))
    return f"{total} / {count}"
