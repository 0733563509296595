"""The names that rules and panels are written with, out of those that the library emits."""

from __future__ import annotations

from typing import Final

from ragtrace.core import semconv
from ragtrace_exporters.openmetrics.naming import label_name

JOB: Final = "job"
"""Prometheus's label for the service: its name, where `scrape_configs` follow the kit or a collector is between."""
METRIC: Final = label_name(semconv.EVALUATION_NAME)
WORKFLOW: Final = label_name(semconv.WORKFLOW_NAME)
EVALUATOR: Final = label_name(semconv.EVALUATOR_ID)
OUTCOME: Final = label_name(semconv.OUTCOME)
REASON: Final = label_name(semconv.REASON)
MOMENT: Final = label_name(semconv.MOMENT)
SERIES: Final = (JOB, METRIC, WORKFLOW, EVALUATOR)
"""What an estimate is of."""

SCORE: Final = "ragtrace_eval_score_bucket"
MOMENTS: Final = "ragtrace_eval_moment_total"
CALLS: Final = "ragtrace_calls_total"
SCORES: Final = "ragtrace_eval_score_count"
JUDGE_SECONDS: Final = "ragtrace_eval_duration_seconds_bucket"
JUDGED: Final = "ragtrace_eval_duration_seconds_count"
CACHED: Final = label_name(semconv.CACHED)
JUDGE_TOKENS: Final = "ragtrace_eval_tokens_total"
JUDGE_COST: Final = "ragtrace_eval_cost_USD_total"
JUDGE_STATE: Final = "ragtrace_judge_state_ratio"
POSTED: Final = "ragtrace_sink_scores_total"
QUEUE: Final = "ragtrace_queue_size"
HELD: Final = "ragtrace_held_size"
ALERT_STATE: Final = "ragtrace_alert_state_ratio"
OPERATION_SECONDS: Final = "gen_ai_client_operation_duration_seconds"
WORKFLOW_SECONDS: Final = "gen_ai_workflow_duration_seconds"
