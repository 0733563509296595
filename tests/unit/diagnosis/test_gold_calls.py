"""Gold calls: a judge that cannot label support is named before anybody relies on its scores."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

import ragtrace
from ragtrace.cli import main
from ragtrace.core.errors import JudgeError
from ragtrace.core.labels import Claim
from ragtrace.core.types import Judgement
from ragtrace.diagnosis.examination import diagnose_judge
from ragtrace.diagnosis.gold_calls import GoldResult, expected_cost, judge_gold_calls
from ragtrace.judges import DecisionJudge, Price
from ragtrace.system.terminal import FAILURE, OK, USAGE
from ragtrace.testing import DecisionServer, FakeJudge, OpenAIServer, Reply, Request
from tests.support.watched import watch

TRUE: Final = [number % 2 == 0 for number in range(10)]
"""Whether the passage supports the answer, call by call."""


def labelled(supported: Sequence[bool]) -> FakeJudge:
    """Return a chat judge that labels the answer of each gold call so."""
    labels = [Judgement(claims=(Claim("x", 0, 1, "supported" if each else "not_found"),)) for each in supported]
    return FakeJudge(*labels, name="chat")


def wrong_in(count: int) -> list[bool]:
    return [each is not (number < count) for number, each in enumerate(TRUE)]


def right() -> Callable[[Request], Mapping[str, object]]:
    """Return a rule that answers right, and anything else that is asked with yes."""
    chances = iter([0.9 if each else 0.1 for each in TRUE])
    return lambda request: {"s1": next(chances)} if '"s1"' in json.dumps(request.body) else {}


def gold(judge: ragtrace.judges.Judge) -> tuple[GoldResult, list[str]]:
    found = judge_gold_calls(judge)
    return found, list(found.problems())


# --- chat judges -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (0, ""),
        (1, ""),
        (2, "chat@1 is unsure about support: 2 of 10 gold calls have the wrong label; measure it"),
        (3, "chat@1 is unsure about support: 3 of 10 gold calls have the wrong label; measure it"),
        (
            4,
            "chat@1 cannot label support: 4 of 10 gold calls have the wrong label; take a larger model, OpenAIJudge(mo",
        ),
        (
            7,
            "chat@1 cannot label support: 7 of 10 gold calls have the wrong label; take a larger model, OpenAIJudge(mo",
        ),
    ],
)
def test_wrong_labels_are_counted(wrong: int, said: str) -> None:
    """One slip is nothing, as good models slip, too; half of ten is what guessing gives."""
    found, problems = gold(labelled(wrong_in(wrong)))
    assert (found.calls, found.wrong) == (10, wrong)
    assert [problem[: len(said)] for problem in problems] == ([said] if said else [])


def test_a_call_without_a_label_is_wrong_and_says_why() -> None:
    """A judge that is not believed is of as little use as one that is wrong."""
    judge = FakeJudge(Judgement(reasons={"claims": "unverified"}), name="chat")
    found, [problem] = gold(judge)
    assert (found.wrong, found.order) == (10, None)
    (why,) = found.unlabelled
    assert f"10 of 10 gold calls have the wrong label (10 of them none: {why} 10)" in problem


def test_a_server_that_is_away_is_not_blamed_on_the_model() -> None:
    """And is not asked nine times more."""
    judge = FakeJudge(JudgeError("unavailable", "HTTP 501", retryable=False), name="chat")
    diagnosis = diagnose_judge(judge)
    ([found], [problem]) = diagnosis.gold, diagnosis.problems
    assert "chat@1  none judged  " in str(diagnosis)
    assert (found.calls, found.wrong, len(judge.calls)) == (0, 0, 1)
    assert problem == "chat@1 did not judge gold call 1 of 10: unavailable: HTTP 501"


def test_a_model_that_compares_words_is_found() -> None:
    """Through the prompts and the checks of the chat judge: names that are exchanged have all their words."""
    with OpenAIServer() as server:
        found, [problem] = gold(ragtrace.OpenAIJudge("local", base_url=server.url, api_key="none"))
        assert 10 <= server.n_chats == found.cost.n_calls <= 20
    assert found.wrong >= 2
    assert "openai@local/fast/prompts-" in problem


# --- decision judges -------------------------------------------------------------------------------------------------


def decision(server: OpenAIServer) -> DecisionJudge:
    return DecisionJudge("local", base_url=server.url, api_key="none", price=Price(1.0))


def test_of_probabilities_the_order_counts() -> None:
    """Those of a decision model are not calibrated: all may lie on one side of 0.5, and tell good from bad."""
    chances = iter([0.9, 0.7, 0.95, 0.6, 0.8, 0.65, 0.99, 0.75, 0.9, 0.6])
    with DecisionServer(lambda _: {"s1": next(chances)}) as server:
        diagnosis = diagnose_judge(decision(server))
    assert [(each.wrong, each.order) for each in diagnosis.gold] == [(5, 1.0)]
    assert diagnosis.ok
    (note,) = diagnosis.notes
    assert "on whose wrong side are 5 of 10 gold calls, though they are in order: pass and fail" in note


def test_probabilities_on_both_sides_need_no_note() -> None:
    """As those of a model for which 0.5 means what it says."""
    with DecisionServer(right()) as server:
        diagnosis = diagnose_judge(decision(server))
    assert ([each.wrong for each in diagnosis.gold], diagnosis.notes) == ([0], ())


def test_probabilities_in_no_order_are_a_problem() -> None:
    """As of a model that reads nothing of the call."""
    with DecisionServer({"s1": 0.9}) as server:
        found, [problem] = gold(decision(server))
    assert found.order == 0.5
    assert "decision@local/openai/questions-" in problem
    assert "it has them in order in 50% of the pairs of gold calls (by guessing in 50%)" in problem


def test_a_decision_model_that_refuses_labels_nothing() -> None:
    """The reason stands in the sentence; it is not sent to another protocol, which it has already."""
    with DecisionServer({"s1": "refusal"}) as server:
        _, [problem] = gold(decision(server))
    assert "10 of 10 gold calls have the wrong label (10 of them none: refused 10); take a larger model. " in problem


# --- in the doctor ---------------------------------------------------------------------------------------------------


def test_the_doctor_asks_only_where_it_is_told_to() -> None:
    """A diagnosis without the flag costs nothing."""
    judge = labelled(wrong_in(7))
    watch(judge=judge)
    assert ragtrace.doctor().gold == ()
    assert judge.calls == []
    diagnosis = ragtrace.doctor(gold_calls=True)
    assert len(judge.calls) == 10
    assert [each.wrong for each in diagnosis.gold] == [7]  # the screen compares words, and asks no model
    assert any(problem.startswith("chat@1 cannot label support") for problem in diagnosis.problems)
    assert "Gold calls\n  chat@1  7 of 10 wrong" in str(diagnosis)
    assert json.loads(json.dumps(diagnosis.as_dict()))["gold"][0]["wrong"] == 7


def test_what_it_takes_is_said_in_money_where_the_price_is_known() -> None:
    """Before the first request."""
    judge = DecisionJudge("m", base_url="http://localhost:1/v1", api_key="none", price=Price(1.0))
    assert expected_cost(judge).endswith(": 10 requests, about 2,000 tokens in and 10 out, 0.0020 USD")
    assert "and 1,500 out; the price is not known; up to twice as much" in expected_cost(labelled(TRUE))


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Write the module of an application into the working directory, and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> str:
        (tmp_path / "gold_app.py").write_text(text)
        return "gold_app"

    return write


def test_the_command_says_what_it_takes_first(app: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, so that `--json` prints one object alone."""
    with DecisionServer(right()) as server:
        target = app(
            "import ragtrace\n"
            f"judge = ragtrace.DecisionJudge('local', base_url={server.url!r}, api_key='none')\n"
            "ragtrace.configure(exporter='none', judge=judge)\n"
        )
        assert main(["doctor", "--app", target, "--gold", "--json"]) == OK
    out, err = capsys.readouterr()
    assert "about 10 gold calls, one at a time: 10 requests" in err
    assert json.loads(out)["gold"][0]["calls"] == 10


def test_the_command_asks_a_judge_without_an_application(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as a local model that somebody thinks of using; the exit status says whether it may be."""
    with DecisionServer(right()) as server:
        assert main(["doctor", "--gold", "--judge", "decision:local", "--base-url", server.url]) == OK
    assert "a judge alone; no application was looked at" in capsys.readouterr().out
    with OpenAIServer(Reply.babbling()) as server:
        assert main(["doctor", "--gold", "--judge", "openai:local", "--base-url", server.url]) == FAILURE
    assert "cannot label support: 10 of 10 gold calls have the wrong label" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gold"],
        ["--judge", "openai:m"],
        ["--gold", "--app", "shop", "--judge", "openai:m"],
        ["--gold", "--judge", "embedded"],
        ["--gold", "--judge", "nobody"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_asked_is_wrong_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One judge, which asks a model."""
    assert main(["doctor", *arguments]) == USAGE
    assert capsys.readouterr().out == ""
