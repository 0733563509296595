"""Virtual environments of the applications in this folder, outside the repository.

`environment.py` makes those that are missing, `environment.py NAME...` only these; `--newest` installs the newest
versions instead of the pinned ones.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest brings it there
    import tomli as tomllib  # type: ignore[no-redef]

FOLDER: Final = Path(__file__).parent
RECORDED: Final = FOLDER.parents[1] / "files" / "recorded"
"""Folder of the recordings that are committed."""
CAPTURED: Final = FOLDER.parents[1] / "files" / "captured.json"
"""Committed rows of what ragtrace captures of SDKs."""
MODES: Final = ("sync", "async", "stream", "astream")
_INSTALL_S: Final = 1200.0
_RECORD_S: Final = 180.0


def environments() -> dict[str, dict[str, Any]]:
    """Return the environments in environments.toml by their names."""
    return tomllib.loads((FOLDER / "environments.toml").read_text(encoding="utf-8"))


def applications_of(environment: str) -> list[str]:
    """Return the applications that run in *environment*."""
    described = environments()[environment]
    return [*described["applications"], *described.get("applications_in_two_modes", ())]


def environment_of(application: str, instrumentation: str) -> str:
    """Return the name of the environment with the packages of *application* and *instrumentation*."""
    names = [name for name in environments() if application in applications_of(name)]
    return next((name for name in names if instrumentation in instrumentations_of(name)), names[0])


def instrumentations_of(environment: str) -> list[str]:
    """Return the instrumentations that are recorded in *environment*."""
    described = environments()[environment]
    return [*described["instrumentations"], *described.get("instrumentations_in_two_modes", ())]


def modes_of(application: str) -> tuple[str, ...]:
    """Return the modes in which *application* can run, in the order of `MODES`."""
    described = next(each for name, each in environments().items() if application in applications_of(name))
    return tuple(described.get("modes", MODES))


def framework_of(application: str) -> str:
    """Return the name of the framework of *application*; an environment has that name unless it gives another."""
    name = next(name for name in environments() if application in applications_of(name))
    return str(environments()[name].get("framework", name))


def cells() -> Iterator[tuple[str, str, str]]:
    """Yield (application, instrumentation, mode) of every recording that is committed."""
    for described in environments().values():
        every_mode = product(described["applications"], described["instrumentations"])
        yield from ((*pair, mode) for pair in every_mode for mode in described.get("modes", MODES))
        two_modes = chain(
            product(described["applications"], described.get("instrumentations_in_two_modes", ())),
            product(described.get("applications_in_two_modes", ()), described["instrumentations"]),
        )
        yield from ((*pair, mode) for pair in two_modes for mode in ("sync", "astream"))


def path_of(environment: str, *, newest: bool = False) -> Path:
    """Return the folder of the *environment*; its name changes with the versions."""
    services = Path(os.environ.get("RAGTRACE_SERVICES_DIR") or Path.home() / ".cache" / "ragtrace-services")
    packages = "\n".join(_requirements(environment, newest=newest))
    return services / f"framework-{environment}-{hashlib.sha256(packages.encode()).hexdigest()[:12]}"


def _requirements(environment: str, *, newest: bool) -> list[str]:
    described = environments()[environment]
    packages: list[str] = described["packages"]
    if not newest:
        return packages
    added: list[str] = described.get("newest", [])
    bounded = {requirement.partition("<")[0] for requirement in added}
    return [name for package in packages if (name := package.partition("==")[0]) not in bounded] + added


def python_of(environment: str, *, newest: bool = False) -> Path:
    """Return the interpreter of the *environment*; the test is skipped if that environment is missing.

    The test fails instead if RAGTRACE_REQUIRE_SERVICES=1.
    """
    folder = path_of(environment, newest=newest)
    if not (folder / ".installed").exists():
        import pytest  # the environments do not have it

        reason = f"no environment {environment} under {folder}; run: .ci/run services"
        if os.environ.get("RAGTRACE_REQUIRE_SERVICES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder / "bin" / "python"


class Recorder:
    """Processes that record applications, one for each environment, within a `with` block.

    A process imports a framework once for all recordings of that framework: that takes longer than a recording.

    Args:
        script: the script in this folder that the processes run; another one than record.py takes requests by `ask`.
        newest: record with the newest versions of all packages instead of the pinned ones.
    """

    def __init__(self, script: str = "record.py", *, newest: bool = False) -> None:
        self._script, self._newest = script, newest
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.communicate()

    def record(self, application: str, instrumentation: str, mode: str, folder: Path) -> None:
        """Record *application* in its own environment, with files in *folder*.

        Raises:
            AssertionError: the recording failed, or took longer than three minutes.
        """
        self.ask(environment_of(application, instrumentation), application, instrumentation, mode, str(folder))

    def ask(self, environment: str, *request: str) -> str:
        """Return what the script wrote for *request*, whose first item is an application, in *environment*.

        Raises:
            AssertionError: the script failed, or took longer than three minutes.
        """
        process = self._processes.get(environment) or self._start(environment)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _RECORD_S)
        line = process.stdout.readline() if ready else ""
        if not line:  # the process ended or hangs: the next request gets a new one
            process.kill()
            self._processes.pop(environment).communicate()
            raise AssertionError(f"{' '.join(request)}: no answer within {_RECORD_S:g} s")
        status, output = json.loads(line)
        assert status == 0, f"{' '.join(request)} exited with {status}:\n{output[-4000:]}"
        return str(output)

    def _start(self, environment: str) -> subprocess.Popen[str]:
        python = python_of(environment, newest=self._newest)
        process = subprocess.Popen(
            [str(python), str(FOLDER / self._script)],
            env=_isolated(),
            cwd=python.parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes[environment] = process
        return process


def _isolated() -> dict[str, str]:
    """Return the environment variables without those of the tests: no ragtrace, no settings of OpenTelemetry."""
    isolated = ("OTEL_", "PYTHON", "OPENAI_", "RAGTRACE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(isolated)}


def captures() -> dict[str, str]:
    """Return the modules whose forms `captured.py` runs, by the names of their environments."""
    return {name: each["captures"] for name, each in environments().items() if "captures" in each}


def capture(environment: str, *, newest: bool = False) -> list[dict[str, Any]]:
    """Return the rows of what ragtrace captures now of the SDKs in *environment*.

    Raises:
        AssertionError: the module of the environment failed.
    """
    python = python_of(environment, newest=newest)
    command = [str(python), str(FOLDER / "captured.py"), captures()[environment]]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 2 * _RECORD_S}
    ended = subprocess.run(command, env=_isolated(), cwd=python.parents[1], check=False, **options)
    assert ended.returncode == 0, ended.stderr[-4000:]
    rows: list[dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])  # the SDKs may write to stdout as well
    return rows


def make(environment: str, *, newest: bool = False) -> Path:
    """Install the *environment* and return its folder; one with pinned versions is installed once."""
    folder = path_of(environment, newest=newest)
    if (folder / ".installed").exists() and not newest:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    packages = _requirements(environment, newest=newest)
    uv = os.environ.get("RAGTRACE_UV") or shutil.which("uv")
    if uv:
        subprocess.run([uv, "venv", "-q", "-p", sys.executable, str(folder)], check=True, timeout=_INSTALL_S)
        install = [uv, "pip", "install", "-q", "--python", str(folder / "bin" / "python")]
    else:
        venv.create(folder, with_pip=True)
        install = [str(folder / "bin" / "python"), "-m", "pip", "install", "-qq", "--retries", "10", "--timeout", "60"]
    subprocess.run([*install, *packages], check=True, timeout=_INSTALL_S, stdin=subprocess.DEVNULL)
    (folder / ".installed").touch()
    return folder


def newest_versions(environment: str) -> list[str]:
    """Return, a line each, which of the newest versions in the *environment* differ from the pinned and released ones.

    The package index is asked for the newest release of each package, whatever other packages require of it.
    """
    python = str(path_of(environment, newest=True) / "bin" / "python")
    uv = os.environ.get("RAGTRACE_UV") or shutil.which("uv")
    lists = [uv, "pip", "list", "-q", "--python", python] if uv else [python, "-m", "pip", "list"]
    listed = json.loads(_output([*lists, "--format", "json"]))
    installed = {_normalized(package["name"]): package["version"] for package in listed}
    if uv:
        each = [uv, "pip", "compile", "-q", "--no-deps", "--no-header", "--no-annotate", "--python", python, "-"]
        released = dict(line.split("==") for line in _output(each, "\n".join(installed)).splitlines())
    else:
        each = [python, "-m", "pip", "install", "-qq", "--dry-run", "--ignore-installed", "--no-deps", "--report", "-"]
        found = [package["metadata"] for package in json.loads(_output([*each, *installed]))["install"]]
        released = {_normalized(package["name"]): package["version"] for package in found}
    return version_differences(environments()[environment]["packages"], installed, released)


def _output(command: list[str], given: str = "") -> str:
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "check": True, "timeout": _INSTALL_S}
    return str(subprocess.run(command, input=given, **options).stdout)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def version_differences(pinned: list[str], installed: dict[str, str], released: dict[str, str]) -> list[str]:
    """Return a line for each package whose version is not the pinned one, and for each that has a newer release.

    A newer release is not installed where a package of the environment excludes it, or one that it requires is missing.

    Args:
        pinned: requirements with `==`, which may have extras; others are left out.
        installed: version of each package.
        released: newest release of each package.
    """
    pins = [requirement.split("==") for requirement in pinned if "==" in requirement]
    versions = [(name.partition("[")[0], version) for name, version in pins]
    changed = [f"{name} {installed[name]}, pinned {pin}" for name, pin in versions if installed[name] != pin]
    newer = [(name, release) for name, release in released.items() if release != installed[name]]
    return (changed or ["as pinned"]) + [
        f"{name} {installed[name]}, newest release {release}" for name, release in newer
    ]


def main(arguments: list[str]) -> None:
    """Make the environments that the command line names, or all."""
    newest = "--newest" in arguments
    names = [argument for argument in arguments if not argument.startswith("-")] or list(environments())
    for name in names:
        sys.stdout.write(f"{name}: {make(name, newest=newest)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
