"""The configuration file of the gateway has the arguments of `configure`; a wrong one is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ragtrace
from ragtrace.core.errors import SettingsError
from ragtrace.core.price import Price
from ragtrace.gateway.config_file import read_config


def _read(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "ragtrace.toml"
    path.write_text(text, encoding="utf-8")
    return read_config(path)


def test_the_keys_are_the_arguments_of_configure(tmp_path: Path) -> None:
    """Plain values as they are, tables as the objects that they describe."""
    found = _read(
        tmp_path,
        """
        service = "gateway"
        exporter = "none"
        metrics = ["consistency", "suspicious"]
        screen = "embedded"
        [judge]
        model = "gpt-4o-mini"
        base_url = "http://127.0.0.1:9/v1"
        requests = { timeout = 5.0 }
        [sampling]
        rate = 0.1
        per_minute = 60
        [redact]
        patterns = ['\\d{16}']
        [[alerts]]
        metric = "consistency"
        below = 0.5
        """,
    )
    assert (found["service"], found["sampling"]) == ("gateway", ragtrace.Sampling(rate=0.1, per_minute=60))
    assert found["redact"].text("1234567812345678").text == "[redacted]"
    assert [alert.metric for alert in found["alerts"]] == ["consistency"]
    assert isinstance(found["judge"], ragtrace.OpenAIJudge)
    del found["judge"]  # it needs a key
    ragtrace.configure(**found)


def test_options_are_tables(tmp_path: Path) -> None:
    """Of their fields; what has a path may be the path alone, and canaries are among the alerts."""
    found = _read(
        tmp_path,
        """
        baseline = "baseline.json"
        [canaries]
        path = "canaries.jsonl"
        interval = 60
        [limits]
        capacity = 5
        [store]
        path = "history.db"
        days = 7
        [telemetry]
        evidence = true
        [judge]
        model = "m"
        limits = { timeout = 9, turns = 0 }
        [[alerts]]
        metric = "consistency"
        below = 0.5
        """,
    )
    assert found["limits"] == ragtrace.Limits(capacity=5)
    assert (found["store"], found["baseline"]) == (ragtrace.History("history.db", days=7), "baseline.json")
    assert found["telemetry"] == ragtrace.TelemetryOptions(evidence=True)
    assert found["judge"].limits == ragtrace.JudgeLimits(timeout=9, turns=0)
    assert found["alerts"][1:] == [ragtrace.Canaries("canaries.jsonl", interval=60)]
    assert _read(tmp_path, 'canaries = "c.jsonl"') == {"alerts": [ragtrace.Canaries("c.jsonl")]}


def test_an_evaluator_may_be_switched_off(tmp_path: Path) -> None:
    """As None does in Python."""
    assert _read(tmp_path, 'screen = "none"\njudge = "embedded:extractive"')["screen"] is None


def test_a_decision_judge_is_a_table_with_its_protocol_or_a_text(tmp_path: Path) -> None:
    """As judge and as screen; without a protocol a table describes an LLM judge."""
    table = """
        model = "jev-latest"
        protocol = "systemone"
        base_url = "http://127.0.0.1:9/v1"
        price = { input = 0.042 }
    """
    for name in ("judge", "screen"):
        found = _read(tmp_path, f"[{name}]\n{table}")[name]
        assert isinstance(found, ragtrace.DecisionJudge)
        assert (found.version, found.price) == ("jev-latest/systemone/questions-1", Price(0.042))
    spec = _read(tmp_path, 'judge = "decision:gpt-6-luna"')["judge"]
    assert (spec.version, spec.type) == ("gpt-6-luna/openai/questions-1", "decision")


@pytest.mark.parametrize(("text", "broker"), [("", "redis://broker"), ("fleet = 'redis://broker'", "")])
def test_a_gateway_of_a_fleet_does_not_import_the_workers_judge(tmp_path: Path, text: str, broker: str) -> None:
    """They may share a file, and the module of the judge may be installed where the workers are only."""
    path = tmp_path / "ragtrace.toml"
    path.write_text(f"service = 'rag'\njudge = 'judge_of_the_workers:judge'\n{text}", encoding="utf-8")
    assert "judge" not in read_config(path, broker=broker)
    with pytest.raises(SettingsError, match="judge_of_the_workers"):
        read_config(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("servce = 'x'", "did you mean 'service'"),
        ("evaluate_spans = true", "no setting named 'evaluate_spans'"),
        ("service = ", "cannot be read"),
        ("sampling = 0.5", "sampling in .* must be a table"),
        ("[sampling]\nrte = 0.5", "did you mean 'rate'"),
        ("capacity = 5", "no setting named 'capacity'"),
        ("[limits]\ncapcity = 5", "did you mean 'capacity'"),
        ("[telemetry]\ntracer_provider = 'mine'", "no key named 'tracer_provider'"),
        ("[judge]\nmodel = 'm'\nlimits = 5", r"judge\.limits in .* must be a table"),
        ("[sampling]\nrate = 5", "rate must be between 0 and 1"),
        ("[judge]\nmodel = 'm'\napi_key = 'k'", "set OPENAI_API_KEY"),
        ("[judge]\nmode = 'fast'", "judge in .*model"),
        ("judge = 3", "must be a text"),
        ("[judge]\nmodel = 'm'\nprotocol = 'grpc'", "protocol must be one of openai, systemone, logprobs"),
        ("[judge]\nmodel = 'm'\nprotocol = 'openai'\nmode = 'fast'", "no key named 'mode'"),
        ("[screen]\nmodel = 'm'", "a table with the protocol of a decision model"),
        ("alerts = 'x'", r"written as \[\[alerts\]\]"),
    ],
)
def test_a_wrong_key_or_value_is_named(tmp_path: Path, text: str, message: str) -> None:
    """Nothing is started then."""
    with pytest.raises(SettingsError, match=message):
        _read(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """It may be misspelt."""
    with pytest.raises(SettingsError, match=r"no\.toml cannot be read"):
        read_config(tmp_path / "no.toml")
