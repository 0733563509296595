"""Virtual environments of the applications in this folder, outside the repository.

`environment.py` makes those that are missing, `environment.py NAME...` only these; `--newest` installs the newest
versions instead of the pinned ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, Final

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest brings it there
    import tomli as tomllib  # type: ignore[no-redef]

FOLDER: Final = Path(__file__).parent
_INSTALL_S: Final = 1200.0
_RECORD_S: Final = 180.0


def environments() -> dict[str, dict[str, Any]]:
    """Return the environments in environments.toml by the name of their framework."""
    return tomllib.loads((FOLDER / "environments.toml").read_text(encoding="utf-8"))


def framework_of(application: str) -> str:
    """Return the name of the framework, and so of the environment, that *application* needs."""
    return next(name for name, described in environments().items() if application in described["applications"])


def path_of(framework: str, *, newest: bool = False) -> Path:
    """Return the folder of the environment of *framework*; its name changes with the versions."""
    services = Path(os.environ.get("RAGTRACE_SERVICES_DIR") or Path.home() / ".cache" / "ragtrace-services")
    packages = "\n".join(_requirements(framework, newest=newest))
    return services / f"framework-{framework}-{hashlib.sha256(packages.encode()).hexdigest()[:12]}"


def _requirements(framework: str, *, newest: bool) -> list[str]:
    packages: list[str] = environments()[framework]["packages"]
    return [package.partition("==")[0] for package in packages] if newest else packages


def python_of(framework: str, *, newest: bool = False) -> Path:
    """Return the interpreter of the environment of *framework*; the test is skipped if that environment is missing.

    The test fails instead if RAGTRACE_REQUIRE_SERVICES=1.
    """
    folder = path_of(framework, newest=newest)
    if not (folder / ".installed").exists():
        import pytest  # the environments do not have it

        reason = f"no environment of {framework} under {folder}; run: .ci/run services"
        if os.environ.get("RAGTRACE_REQUIRE_SERVICES") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder / "bin" / "python"


def record(application: str, instrumentation: str, mode: str, folder: Path, *, newest: bool = False) -> str:
    """Record *application* in its own environment, with files in *folder*; return what it wrote to standard error.

    Raises:
        AssertionError: the recording failed.
    """
    python = python_of(framework_of(application), newest=newest)
    # Isolated from the environment of the tests: no ragtrace, no settings of OpenTelemetry.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "PYTHON", "OPENAI_"))}
    command = [str(python), str(FOLDER / "record.py"), application, instrumentation, mode, str(folder)]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=_RECORD_S)
    assert done.returncode == 0, f"{' '.join(command[2:])} exited with {done.returncode}:\n{done.stderr[-4000:]}"
    return done.stderr


def make(framework: str, *, newest: bool = False) -> Path:
    """Install the environment of *framework* unless it is there, and return its folder."""
    folder = path_of(framework, newest=newest)
    if (folder / ".installed").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    packages = _requirements(framework, newest=newest)
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


def main(arguments: list[str]) -> None:
    """Make the environments that the command line names, or all."""
    newest = "--newest" in arguments
    names = [argument for argument in arguments if not argument.startswith("-")] or list(environments())
    for name in names:
        sys.stdout.write(f"{name}: {make(name, newest=newest)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
