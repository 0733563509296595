"""Tools for tests of applications that use ragtrace, and for trying ragtrace without an API key.

Telemetry in memory, a scripted judge, a clock that the test moves, and a local model server.

Example:
    captured = Captured()
    ragtrace.configure(exporter=captured.signals)
    my_application()
    ragtrace.flush()
    assert captured.root().attributes["ragtrace.eval.status"] == "ok"
"""

from ragtrace.offline.assertions import assert_scores
from ragtrace.testing.decision_server import DecisionServer
from ragtrace.testing.fakes import Captured, FakeClock, FakeJudge
from ragtrace.testing.openai_server import OpenAIServer
from ragtrace.testing.replies import Reply, Request

__all__ = ["Captured", "DecisionServer", "FakeClock", "FakeJudge", "OpenAIServer", "Reply", "Request", "assert_scores"]
