"""Which endpoints and judges there are to ask, all at once, and what they said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, cast

from ragtrace.core.endpoints import Endpoint
from ragtrace.core.errors import SettingsError
from ragtrace.core.text import encodable
from ragtrace.core.types import Probed
from ragtrace.diagnosis.otlp_probe import Answer, ask, shown
from ragtrace.diagnosis.question import Question, Reach, ask_beside
from ragtrace.diagnosis.report import Check
from ragtrace.evaluation.scoring import Evaluator
from ragtrace.runtime.snapshot import Insides
from ragtrace.telemetry.export.destinations import ENTRY_POINTS

_MOST_CHARS: Final = 200
_NOWHERE: Final = (
    "nothing is sent anywhere: no OTLP endpoint is set; set OTEL_EXPORTER_OTLP_ENDPOINT, or RAGTRACE_EXPORTER=none if "
    "that is meant"
)
_METRICS_ALONE: Final = (
    "metrics are served for Prometheus; spans and events are sent nowhere, as no OTLP endpoint is set: bad answers are "
    "counted, but cannot be looked at"
)


NONE: Final = Reach()


# --- endpoints -------------------------------------------------------------------------------------------------------


def of_endpoints(exporter: str, environ: Mapping[str, str], timeout: float, *, page: bool = False) -> Reach:
    """Ask every endpoint to which the exporter of that name sends something; *page*: it serves one of metrics."""
    if exporter == "none":
        return Reach(notes=("nothing is sent anywhere, as the exporter is 'none'",))
    try:
        endpoints = _endpoints(exporter)
        found = None if endpoints is None else endpoints(environ)
    except (SettingsError, ImportError) as error:
        return Reach(problems=(str(error),))
    if found is None:
        return Reach(notes=(f"the exporter {exporter!r} does not say where it sends things, so that is not checked",))
    if not found:
        return Reach(notes=(_METRICS_ALONE,)) if page else Reach(problems=(_NOWHERE,))
    questions = [ask_beside(each.signal, shown(each), timeout, partial(ask, each, timeout)) for each in found]
    return Reach(tuple(question.wait() for question in questions))


def _endpoints(exporter: str) -> Callable[[Mapping[str, str]], list[Endpoint]] | None:
    """The function `endpoints` beside the one that an entry point names; None if there is none."""
    for point in entry_points(group=ENTRY_POINTS, name=exporter):
        return cast(
            "Callable[[Mapping[str, str]], list[Endpoint]] | None",
            getattr(import_module(point.module), "endpoints", None),
        )
    raise SettingsError(
        f"no exporter named {exporter!r} is installed (from RAGTRACE_EXPORTER); write otlp, for example"
    )


# --- judges ----------------------------------------------------------------------------------------------------------


def of_judges(inside: Insides, timeout: float) -> Reach:
    """Ask every judge that can be asked, where it is always asked: its connections belong to that event loop."""
    checks: list[Check] = []
    notes: list[str] = []
    for evaluator in (inside.evaluators.screen, inside.evaluators.judge):
        if evaluator is None or evaluator.judge_client.computes:
            continue
        if isinstance(evaluator.judge, Probed):
            checks.append(_probe(inside, evaluator, evaluator.judge, timeout))
        else:
            notes.append(f"{evaluator.id} has no probe(), so whether it answers shows only when it is asked")
    return Reach(tuple(checks), tuple(notes))


def _probe(inside: Insides, evaluator: Evaluator, judge: Probed, timeout: float) -> Check:
    question = Question(
        evaluator.id,
        f"{type(judge).__name__} {evaluator.id}@{evaluator.judge.version}",
        timeout,
        "the background did not come to ask it in time: is a judge blocking its thread?",
    )
    if not inside.run(partial(_put, judge, question, timeout)):
        question.settle(Answer(False, "the background takes nothing more", "see the accounts: is the queue full?"))
    return question.wait()


async def _put(judge: Probed, question: Question, timeout: float) -> None:
    try:
        seen = await asyncio.wait_for(judge.probe(), timeout)
        question.settle(Answer(True, _short(str(seen))))
    except (TimeoutError, asyncio.TimeoutError):
        question.settle(Answer(False, f"no answer within {timeout:g} s"))
    except Exception as error:
        question.settle(Answer(False, _short(str(error) or type(error).__name__)))


def _short(text: str) -> str:
    text = encodable(" ".join(text.split()))
    return text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}..."
