"""Fixtures of every test: a clean environment, no runtime and no thread left behind, and the OTLP receivers."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, strategies

from tests.support.examples import register_profiles

if TYPE_CHECKING:
    from tests.support.otlp import GrpcReceiver, HttpReceiver, Receiver

SERVER_FILES: Final = frozenset(
    f"tests/integration/{name}.py"
    for name in ("test_native_scores", "test_phoenix", "test_trace_lists", "test_unchanged_commands")
)
"""Files whose tests share the servers of `tests/integration/conftest.py`."""
FRAMEWORK_FILES: Final = frozenset(
    f"tests/unit/{name}.py"
    for name in (
        *("capture/test_capture_real_objects", "capture/test_providers", "recording/test_prompts"),
        *(f"span_reading/frameworks/test_{framework}" for framework in ("haystack", "langchain", "llama_index")),
        *("recording/test_late_streams", "recording/test_returned_streams"),
    )
)
"""Files whose tests import LlamaIndex, Haystack or LangChain, which takes seconds of processor time."""
THREAD_EXIT_S: Final = 5.0
"""How long a thread that is already ending may take."""


class PassedTests:
    """Pytest plugin that appends the names of the tests that passed to a file, one a line.

    A skipped test is not among them, nor one whose fixtures failed after it.

    Args:
        record: the file.
    """

    def __init__(self, record: Path) -> None:
        self._record = record
        self._passed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a test's set-up, call or teardown."""
        self._passed[report.nodeid] = self._passed.get(report.nodeid, True) and report.passed

    def pytest_sessionfinish(self) -> None:
        """Append the tests of which every part passed."""
        with self._record.open("a", encoding="utf-8") as output:
            output.writelines(f"{name}\n" for name, passed in self._passed.items() if passed)


CERTIFICATES: Final = Path(__file__).parent / "files" / "certificate.pem"
"""A single certificate: each client of HTTP reads all authorities, which takes 20 ms if they are those of the web."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice between tests that measure times, which need the machine to themselves, and all others."""
    parser.addoption(
        "--timing", choices=["with", "without", "only"], default="with", help="tests marked `timing` (default: with)"
    )
    parser.addoption("--passed-to", type=Path, metavar="FILE", help="append the tests that passed to FILE")
    parser.addoption("--except", type=Path, metavar="FILE", help="run only the tests that FILE does not list")


def pytest_configure(config: pytest.Config) -> None:
    """Configure hypothesis and the certificates; let processes take Ctrl-C, which a shell's background jobs ignore."""
    register_profiles()
    record: Path | None = config.getoption("--passed-to")
    if record is not None and not hasattr(config, "workerinput"):  # the workers report to this process
        config.pluginmanager.register(PassedTests(record))
    os.environ["SSL_CERT_FILE"] = str(CERTIFICATES)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one process run the files that share servers or large imports, where one process runs each file."""
    from xdist.scheduler import LoadFileScheduling

    class BySharedSetUp(LoadFileScheduling):
        """Scheduler of files, for which those of `SERVER_FILES` are one, and those of `FRAMEWORK_FILES` another."""

        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            if file in SERVER_FILES:
                return "servers"
            return "frameworks" if file in FRAMEWORK_FILES else file

    return BySharedSetUp(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect by `--timing` and `--except`."""
    choice, record = config.getoption("--timing"), config.getoption("--except")
    passed = set() if record is None else set(record.read_text(encoding="utf-8").splitlines())
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        timed = item.get_closest_marker("timing") is not None
        chosen[choice in {"with", "only" if timed else "without"} and item.nodeid not in passed].append(item)
    config.hook.pytest_deselected(items=chosen[False])
    items[:] = chosen[True]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only the files that have a test marked `timing` where no other test is to run."""
    if config.getoption("--timing") != "only" or collection_path.suffix != ".py":
        return None
    return True if "mark.timing" not in collection_path.read_text(encoding="utf-8") else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while modules are imported and tests are made: there is next to none."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exempt the modules and tests from garbage collection, which each full collection would walk through.

    Nothing is collected before: that takes 0.4 s of each process, and what it would free are some ten megabytes.
    """
    _use_hypothesis()
    gc.freeze()


@given(strategies.none())
def _use_hypothesis(_: None) -> None:
    """Have hypothesis register its random numbers, for which it looks through the objects that are not frozen."""


@pytest.fixture(autouse=True)
def _only_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of whoever runs the tests must not send the tests' telemetry to their backend."""
    keep = {"RAGTRACE_REQUIRE_SERVICES", "RAGTRACE_SERVICES_DIR", "RAGTRACE_LABELLED_DATA"}
    for name in os.environ:
        if name.startswith(("OTEL_", "RAGTRACE_", "OPENAI_")) and name not in keep:
            monkeypatch.delenv(name)
    # A metric reader that a test leaves behind warns each time it finds no provider, in the log of some later test.
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "3600000")


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Shuts ragtrace down after each test, and fails a test that leaves a non-daemon thread."""
    from ragtrace.system.faults import faults

    before = set(threading.enumerate())
    yield
    _shutdown()
    faults.message_filter, faults.hides_messages = None, False  # of the last `configure`
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in left:
        thread.join(THREAD_EXIT_S)
    alive = [thread.name for thread in left if thread.is_alive()]
    assert not alive, f"the test left non-daemon threads behind: {alive}"


def _shutdown() -> None:
    import ragtrace

    ragtrace.shutdown(timeout=5.0)


# The receivers are imported on use: grpc takes half a second, and does not belong into processes that tests fork.
# ragtrace is shut down before they are: its last export would otherwise be retried against a closed port.
@pytest.fixture
def http_receiver() -> Iterator[HttpReceiver]:
    """An OTLP/HTTP receiver on a free port."""
    from tests.support.otlp import HttpReceiver

    with HttpReceiver() as receiver:
        yield receiver
        _shutdown()


@pytest.fixture
def grpc_receiver() -> Iterator[GrpcReceiver]:
    """An OTLP/gRPC receiver on a free port."""
    from tests.support.otlp import GrpcReceiver

    with GrpcReceiver() as receiver:
        yield receiver
        _shutdown()


@pytest.fixture(params=["http_receiver", "grpc_receiver"], ids=["http", "grpc"])
def receiver(request: pytest.FixtureRequest) -> Receiver:
    """An OTLP receiver, once for each protocol."""
    receiver: Receiver = request.getfixturevalue(request.param)
    return receiver
