"""pytest plugin that runs an application on the cases of a dataset and compares its scores with an earlier run.

Without `--ragtrace-cases` it only adds options: ragtrace itself is not imported. It is a package of its own so that
pytest does not import ragtrace, and OpenTelemetry with it, to load the plugin.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ragtrace.offline.case_run import CaseRun, MetricOutcome

_RUN: Any = pytest.StashKey["CaseRun"]()
_FAILURE = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the plugin's command-line options to pytest."""
    group = parser.getgroup("ragtrace", "ragtrace: an application on recorded cases")
    add = group.addoption
    add("--ragtrace-cases", metavar="CASES.jsonl", help="run the cases that `ragtrace dataset` made")
    add("--ragtrace-app", metavar="MODULE:FUNCTION", help="the application: called with each query")
    add("--ragtrace-metrics", metavar="A,B", help="metrics (default: the usual ones that the judge offers)")
    add("--ragtrace-judge", default="embedded", metavar="JUDGE", help="as of `ragtrace score --judge`")
    add("--ragtrace-mode", metavar="MODE", help="mode of a judge openai:MODEL")
    add("--ragtrace-base-url", metavar="URL", help="server of a judge openai:MODEL")
    add("--ragtrace-baseline", metavar="RESULTS.jsonl", help="compare with that run (default: the cases' scores)")
    add("--ragtrace-out", metavar="RESULTS.jsonl", help="write the results, as a baseline for later runs")
    add("--ragtrace-workers", type=int, default=1, metavar="N", help="calls of the application at a time (default 1)")


def pytest_configure(config: pytest.Config) -> None:
    """Load the test cases and the baseline if cases are requested, and stop pytest if either is invalid."""
    if not config.getoption("--ragtrace-cases"):
        return
    config.addinivalue_line("markers", "ragtrace: a case test of the plugin ragtrace")
    if config.getoption("--collect-only", default=False) is False and _is_distributed(config):
        raise pytest.UsageError("--ragtrace-cases compares all cases in one process; leave out -n, or write -n 0")
    config.stash[_RUN] = _make_run(config)


def _is_distributed(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput") or bool(config.getoption("numprocesses", default=None))


def _make_run(config: pytest.Config) -> CaseRun:
    from ragtrace.core.errors import RagtraceError
    from ragtrace.offline.case_run import CaseRun
    from ragtrace_pytest.application import RecordedApplication

    def path(option: str) -> Path | None:
        given = config.getoption(option)
        return Path(given) if given else None

    app, names, spec = (config.getoption(f"--ragtrace-{name}") for name in ("app", "metrics", "judge"))
    workers = int(config.getoption("--ragtrace-workers") or 0)
    cases = path("--ragtrace-cases")
    if not app or ":" not in app or cases is None:
        raise pytest.UsageError("--ragtrace-cases needs the application: --ragtrace-app module:function")
    if workers < 1:
        raise pytest.UsageError(f"--ragtrace-workers must be at least 1, got {workers}")
    try:
        return CaseRun(
            cases_path=cases,
            application=RecordedApplication(app, workers),
            judge_spec=spec or "embedded",
            mode=config.getoption("--ragtrace-mode"),
            base_url=config.getoption("--ragtrace-base-url"),
            metric_names=tuple(name.strip() for name in names.split(",")) if names else None,
            baseline_path=path("--ragtrace-baseline"),
            out=path("--ragtrace-out"),
        )
    except RagtraceError as error:
        raise pytest.UsageError(f"ragtrace: {error}") from None


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return a header line that announces the requests to the application and the judge before the run."""
    run: CaseRun | None = config.stash.get(_RUN, None)
    return None if run is None else f"ragtrace: {run.preview()}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the tests for the dataset: one for the application's exceptions, and one for each metric."""
    run: CaseRun | None = config.stash.get(_RUN, None)
    if run is None:
        return
    file = _CaseFile.from_parent(session, path=run.cases_path.resolve())
    items += [_ApplicationTest.from_parent(file, name="application", run=run)]
    items += [_MetricTest.from_parent(file, name=metric.name, run=run) for metric in run.metrics]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table of metrics and the cost of judging, if test cases were run."""
    run: CaseRun | None = config.stash.get(_RUN, None)
    if run is None or "outcome" not in vars(run):
        return
    terminalreporter.section("ragtrace")
    for line in _summary_lines(run):
        terminalreporter.write_line(line)


class _CaseFile(pytest.File):
    """Collector node for a file of test cases."""

    def collect(self) -> list[pytest.Item]:
        return []


class _CaseTest(pytest.Item):
    """Base class of the tests that are based on a run of the application on all test cases."""

    def __init__(self, *, run: CaseRun, **more: Any) -> None:
        super().__init__(**more)  # pyright: ignore[reportUnknownMemberType]
        self.case_run = run
        self.add_marker("ragtrace")

    def fail_with(self, lines: list[str]) -> None:
        """Fail the test with *lines* as its message, without a traceback of the plugin."""
        pytest.fail("\n".join(lines), pytrace=False)

    def outcome(self) -> Any:
        """Return the outcome of the run on all test cases, or fail the test if ragtrace cannot run the application."""
        from ragtrace.core.errors import RagtraceError

        failure = self.config.stash.get(_FAILURE, "")
        if not failure:
            try:
                return self.case_run.outcome
            except RagtraceError as error:  # kept: the next test must not run the application again
                failure = self.config.stash[_FAILURE] = f"ragtrace: {error}"
        return pytest.fail(failure, pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.path.name}::{self.name}"


class _ApplicationTest(_CaseTest):
    """Test that the application answers every case without an exception."""

    def runtest(self) -> None:
        errors = self.outcome().errors
        if errors:
            line, trace = next(iter(errors.items()))
            lines = [f"the application raised an exception on {len(errors)} of {len(self.case_run.cases)} cases"]
            lines += [f"  line {at}: {error.strip().rpartition(chr(10))[2]}" for at, error in list(errors.items())[:10]]
            self.fail_with([*lines, f"line {line}:", trace.rstrip()])


class _MetricTest(_CaseTest):
    """Test that one metric is not clearly worse than in the baseline."""

    def runtest(self) -> None:
        found: MetricOutcome = self.outcome().metrics[self.name]
        if found.failed and found.difference is not None:
            lines = [f"{self.name} is worse than in the baseline: {_difference_words(found)}"]
            self.fail_with([*lines, *(f"  {line}" for line in found.worst)])
        elif found.difference is None and self.case_run.baseline_path is not None:
            self.fail_with([f"{self.name} cannot be compared with {self.case_run.baseline_path}: {found.why}"])


def _summary_lines(run: CaseRun) -> Iterator[str]:
    outcome = run.outcome
    width = max(map(len, outcome.metrics))
    yield f"judge {run.evaluator}, {len(run.cases) - len(outcome.errors)} of {len(run.cases)} cases answered"
    for name, found in outcome.metrics.items():
        mean = "-" if found.mean is None else f"{found.mean:.3f}"
        missing = ", ".join(f"{count} {reason}" for reason, count in found.unscored.items())
        scored = f"{found.scored} scored{f' ({missing})' if missing else ''}"
        what = _difference_words(found) if found.difference is not None else ""
        yield f"{name:<{width}}  mean {mean}, {scored}: {', '.join(filter(None, (found.verdict, what)))}"
        if found.why:
            yield f"{'':<{width}}  {found.why}"
    cost = outcome.cost
    if cost.n_calls:
        usd = "price not known" if cost.cost_usd is None else f"{cost.cost_usd:.4f} USD"
        yield f"judging: {cost.n_calls} requests, {cost.input_tokens} tokens in, {cost.output_tokens} out, {usd}"
    if run.out is not None:
        yield f"results: {run.out}"


def _difference_words(found: MetricOutcome) -> str:
    change = found.difference
    if change is None:
        return ""
    ends = "" if change.low is None or change.high is None else f" [{change.low:+.3f}, {change.high:+.3f}]"
    return f"{change.value:+.3f}{ends} over {change.n} cases"
