"""What bad calls share: planted causes are found, chance is not, and every form of the report shows them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from ragtrace.core.labels import Claim
from ragtrace.core.tags import TagValue
from ragtrace.core.types import Document, Evaluation, RagCall, Score
from ragtrace.history.schema import history_file
from ragtrace.history.source import CallOrigin
from ragtrace.history.writing import HistoryWriter, QueuedCall
from ragtrace.report.analysis import build_report
from ragtrace.report.console import render_terminal
from ragtrace.report.html_page import render_html
from ragtrace.report.markdown import render_markdown
from ragtrace.report.model import Grouping, Period, Report, to_json
from tests.support.history import GIB

NOW: Final = 1_800_000_000.0
TODAY: Final = Period(NOW - 86_400.0, NOW)
TOPICS: Final = ("shoes", "vouchers", "refunds", "parcels", "gloves", "scarves")


def report_on(
    path: Path, is_bad: Callable[[RagCall, random.Random], bool], *, count: int = 400, texts: bool = True, seed: int = 1
) -> Report:
    """The report on calls of which every second one is judged; *is_bad* says which are hallucinated."""
    rng, offered = random.Random(seed), list[QueuedCall]()
    for number in range(count):
        topic = rng.choice(TOPICS)
        call = RagCall(
            query=f"May I return {topic} of order {rng.randrange(10**6)}?",
            contexts=tuple(Document(f"About {name}", name, 0.1 + 0.8 * rng.random()) for name in rng.sample(TOPICS, 2)),
            answer="Yes.",
            workflow=rng.choice(("support", "sales")),
            model=rng.choice(("small", "large")),
            span=SpanContext(number + 1, number + 1, False, TraceFlags(1)),
        )
        bad = is_bad(call, rng)
        claims = (Claim("Yes.", 0, 4, rng.choice(("contradicted", "not_found")) if bad else "supported"),)
        found = {"hallucinated": Score(float(bad), "hallucinated", "1", higher_is_better=False, claims=claims)}
        evaluations = (Evaluation("judge", "2", "llm_judge", found, 0.5),) if number % 2 else ()
        offered.append(QueuedCall(call, evaluations, "sampled" if evaluations else "not_sampled", NOW - 1.0 - number))
    history_file(str(path)).create()
    origin = CallOrigin("bot", "1.4.0", "", (), "judge@2", ("hallucinated",))
    with closing(HistoryWriter(str(path), origin, most_bytes=GIB, texts=texts)) as writer:
        writer.write(offered)
    return build_report(str(path), TODAY, compare="none", made_at=NOW)


def grouping(report: Report) -> Grouping:
    assert report.grouping is not None
    return report.grouping


def retrieved(call: RagCall, name: str) -> bool:
    return name in [document.id for document in call.contexts or ()]


@pytest.fixture(scope="module")
def of_a_chunk(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Calls that are hallucinated in 50 % with the chunk `gloves`, else in 5 %."""
    return report_on(
        tmp_path_factory.mktemp("chunk") / "history.db",
        lambda call, rng: rng.random() < (0.5 if retrieved(call, "gloves") else 0.05),
    )


def test_the_chunk_behind_bad_calls_is_found(of_a_chunk: Report) -> None:
    """With its rate, that of all others, and intervals that hold the true ones."""
    found = grouping(of_a_chunk)
    assert [(row.kind, row.name) for row in found.worse] == [("chunk", "gloves")]
    [row] = found.worse
    assert row.estimate.low is not None
    assert row.estimate.high is not None
    assert row.estimate.low < 0.5 < row.estimate.high
    assert row.change.low > 0.0
    assert row.change.direction == "worse"
    assert (found.judged, found.read) == (200, 200)
    assert found.examined >= 4 + 6 + 6


@pytest.mark.parametrize(
    ("kind", "name", "is_cause"),
    [
        ("model", "small", lambda call: call.model == "small"),
        ("workflow", "sales", lambda call: call.workflow == "sales"),
        ("word of the query", "shoes", lambda call: "shoes" in call.query),
        ("retrieval", "best retrieval score at most", lambda call: max(c.score for c in call.contexts) < 0.5),
    ],
)
def test_causes_of_every_kind_are_found(
    tmp_path: Path, kind: str, name: str, is_cause: Callable[[RagCall], bool]
) -> None:
    """The planted cause comes first."""
    report = report_on(tmp_path / "history.db", lambda call, rng: rng.random() < (0.6 if is_cause(call) else 0.05))
    first = grouping(report).worse[0]
    assert first.kind == kind
    assert first.name.startswith(name)


def test_chance_is_not_reported(tmp_path: Path) -> None:
    """Ten histories in which nothing is a cause, each with twenty groups: none is called worse."""
    for seed in range(10):
        report = report_on(tmp_path / f"{seed}.db", lambda call, rng: rng.random() < 0.2, seed=seed, count=300)
        assert grouping(report).examined >= 12
        assert not grouping(report).worse


def of_tenants(tags: Mapping[str, Sequence[TagValue]]) -> Callable[[RagCall, random.Random], None]:
    """Give each call one of the values of each of *tags*."""
    return lambda call, rng: object.__setattr__(
        call, "tags", {name: rng.choice(values) for name, values in tags.items()}
    )


def test_a_bad_tenant_of_twenty_is_named(tmp_path: Path) -> None:
    """And nobody else, beside a tag that means nothing; every form names it."""
    tagged = of_tenants({"tenant": [f"t{number}" for number in range(20)], "paying": [True, False]})

    def is_bad(call: RagCall, rng: random.Random) -> bool:
        tagged(call, rng)
        return rng.random() < (0.6 if call.tags["tenant"] == "t7" else 0.05)

    report = report_on(tmp_path / "history.db", is_bad, count=2_000)
    assert [(row.kind, row.name) for row in grouping(report).worse] == [("tag", "tenant=t7")]
    for text in (render_terminal(report), render_markdown(report).replace("\\", ""), render_html(report)):
        assert "tag tenant=t7" in " ".join(text.split())


def test_the_main_metric_is_estimated_for_each_value_of_a_tag(tmp_path: Path) -> None:
    """Of all judged calls that have the tag; every form has the table, and JSON the rows."""
    tagged = of_tenants({"tenant": ["acme", "globex"]})

    def is_bad(call: RagCall, rng: random.Random) -> bool:
        if rng.random() < 0.5:
            tagged(call, rng)
        return rng.random() < (0.5 if call.tags.get("tenant") == "globex" else 0.1)

    report = report_on(tmp_path / "history.db", is_bad, count=1_000)
    assert report.headline is not None
    [(name, rows)] = report.headline.by_tags
    values = {row.name: row.estimate.value or 0.0 for row in rows}
    assert (name, set(values)) == ("tenant", {"tenant=acme", "tenant=globex"})
    assert values["tenant=acme"] < 0.2 < 0.4 < values["tenant=globex"]
    assert sum(row.calls for row in rows) == pytest.approx(500, abs=60)
    for text in (render_terminal(report), render_markdown(report)):
        assert "by tenant" in text
    assert "<h3>By tenant</h3>" in render_html(report)
    assert '"by_tags"' in to_json(report)


def test_a_tag_with_too_many_values_or_one_makes_no_groups(tmp_path: Path) -> None:
    """Neither the id of a request nor a tag that all calls have in common; the values are counted among the calls."""
    plain = report_on(tmp_path / "plain.db", lambda call, rng: rng.random() < 0.1)
    for tags, more in (
        ({"id": [f"{number}" for number in range(10**6)], "only": ["one"]}, 0),
        ({"half": [f"{number}" for number in range(51)]}, 0),
        ({"half": [f"{number}" for number in range(12)], "id": [f"{number}" for number in range(10**6)]}, 12),
    ):
        tagged = of_tenants(tags)

        def is_bad(call: RagCall, rng: random.Random, tagged: Callable[..., None] = tagged) -> bool:
            tagged(call, random.Random(call.query))
            return rng.random() < 0.1

        found = grouping(report_on(tmp_path / f"{len(tags)}-{more}.db", is_bad))
        assert (found.examined, found.worse) == (grouping(plain).examined + more, ())


def test_most_bad_calls_that_ask_one_question_are_said_to(tmp_path: Path) -> None:
    """No word and no chunk of it is a group then; every form of the report names it."""

    def is_bad(call: RagCall, rng: random.Random) -> bool:
        if rng.random() < 0.3:
            object.__setattr__(call, "query", rng.choice(("Is the shop open today?", "is the  shop open today")))
            object.__setattr__(call, "contexts", (Document("About hours", "hours"),))
        return call.query.lower().startswith("is the") or rng.random() < 0.05

    report = report_on(tmp_path / "history.db", is_bad)
    found = grouping(report)
    assert found.worse == ()
    assert found.mostly is not None
    assert found.mostly.query in ("Is the shop open today?", "is the shop open today")
    assert found.read - found.questions + 1 == found.mostly.calls > 40
    for text in (render_terminal(report), render_markdown(report), render_html(report)):
        assert f"Mostly one question: {found.mostly.calls} of the {found.mostly.of} bad calls ask" in " ".join(
            text.split()
        )


def test_a_group_whose_bad_calls_ask_one_question_says_so(tmp_path: Path) -> None:
    """It is worse by its many questions, of which one is asked most."""

    def is_bad(call: RagCall, rng: random.Random) -> bool:
        if "gloves" in call.query and rng.random() < 0.6:
            object.__setattr__(call, "query", "May I return gloves?")
        return "gloves" in call.query or rng.random() < 0.05

    report = report_on(tmp_path / "history.db", is_bad, count=800)
    [row] = grouping(report).worse
    assert (row.kind, row.name) == ("word of the query", "gloves")
    assert row.questions < row.judged
    assert row.mostly is not None
    assert row.mostly.query == "May I return gloves?"
    assert "mostly one question: May I return gloves?" in " ".join(render_html(report).split())


def test_groups_of_the_same_calls_are_one(tmp_path: Path) -> None:
    """A model that serves one workflow alone: the second name stands beside the first."""

    def is_bad(call: RagCall, rng: random.Random) -> bool:
        object.__setattr__(call, "model", "small" if call.workflow == "sales" else "large")
        return rng.random() < (0.6 if call.workflow == "sales" else 0.05)

    [row] = grouping(report_on(tmp_path / "history.db", is_bad)).worse
    assert (row.kind, row.name, row.alike) == ("workflow", "sales", ("model small",))


def test_defects_are_shares_of_the_bad_calls(of_a_chunk: Report) -> None:
    """Contradicting before invented; their shares add up to all of the bad calls."""
    found = grouping(of_a_chunk).defects
    assert [each.kind for each in found] == ["contradicting", "invented"]
    assert sum(each.share.value or 0.0 for each in found) == pytest.approx(1.0)
    assert all(each.share.low is not None and each.share.low > 0.2 for each in found)


def test_calls_without_context_are_missing_context(tmp_path: Path) -> None:
    """They are a group as well, and need no texts."""

    def is_bad(call: RagCall, rng: random.Random) -> bool:
        if rng.random() < 0.2:
            object.__setattr__(call, "contexts", ())
        return not call.contexts or rng.random() < 0.05

    found = grouping(report_on(tmp_path / "history.db", is_bad, texts=False))
    assert [(row.kind, row.name) for row in found.worse] == [("retrieval", "nothing was retrieved")]
    assert found.defects[0].kind == "missing context"


def test_every_form_shows_the_groups(of_a_chunk: Report) -> None:
    """With the procedure that keeps chance out."""
    for text in (render_terminal(of_a_chunk), render_markdown(of_a_chunk), render_html(of_a_chunk)):
        flat = " ".join(text.split())
        assert "chunk gloves" in flat
        assert "Benjamini and Yekutieli" in flat
        assert "contradicting" in flat
    assert json.loads(to_json(of_a_chunk))["grouping"]["worse"][0]["name"] == "gloves"
