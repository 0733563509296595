"""Checks what the wheel and the source distribution contain: `python tests/smoke/contents.py DIST`, in a checkout.

By rule, not by a list of names: the wheel has every file of the packages but the `README.md` of ragtrace's folders,
which are for developers, and nothing else, no test above all; the source distribution has every file of the folders and
documents that a developer needs. Exits 0 and prints one line, or names the files that are missing and those that do not
belong there.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = {
    "ragtrace/": "ragtrace/",
    "ragtrace_pytest/": "ragtrace_pytest/",
    "exporters/ragtrace_exporters/": "ragtrace_exporters/",
}
"""Folders of the repository that the wheel has, and where they are in it."""
METADATA: Final = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
FOLDERS: Final = ("ragtrace/", "ragtrace_pytest/", "exporters/", "examples/", "tests/", "docs/")
DOCUMENTS: Final = (
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md", "mkdocs.yml",
    "pyproject.toml", ".gitignore",
)  # fmt: skip
IN_A_WHEEL: Final = (
    "ragtrace/__init__.py", "ragtrace/py.typed", "ragtrace/cli/llms.txt", "ragtrace/cli/llms-full.txt",
    "ragtrace_exporters/py.typed", "ragtrace_pytest/__init__.py",
)  # fmt: skip
"""Files without which the wheel is certainly wrong, whatever the repository has."""


def main() -> int:
    """Compare the only wheel and the only source distribution in the folder that is named, and return the status."""
    folder = Path(sys.argv[1])
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if not name.endswith("/")}
    with tarfile.open(source) as archive:
        in_source = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    files = repository_files()
    wrong = [
        *compare(wheel.name, in_wheel, wheel_files(files, wheel)),
        *compare(source.name, in_source, source_files(files)),
        *(f"{wheel.name} lacks {name}" for name in IN_A_WHEEL if name not in in_wheel),
    ]
    if wrong:
        sys.stderr.write("\n".join((*wrong, "")))
        return 1
    print(f"{wheel.name}: {len(in_wheel)} files, {source.name}: {len(in_source)} files, none missing, none too many")
    return 0


def repository_files() -> set[str]:
    """Return the files of the checkout that are not ignored, with paths from its root."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {name for name in listed if (ROOT / name).is_file()}


def wheel_files(files: Iterable[str], wheel: Path) -> set[str]:
    """Return what the wheel must have, of the *files* of the repository and of metadata."""
    metadata = "-".join(wheel.name.split("-")[:2]) + ".dist-info/"
    packaged = {
        place + name.removeprefix(folder)
        for name in files
        for folder, place in PACKAGES.items()
        if name.startswith(folder) and not Path(name).match("ragtrace/*/README.md")
    }
    return packaged | {metadata + name for name in METADATA}


def source_files(files: Iterable[str]) -> set[str]:
    """Return what the source distribution must have, of the *files* of the repository and of metadata."""
    return {name for name in files if name.startswith(FOLDERS)} | {*DOCUMENTS, "PKG-INFO"}


def compare(archive: str, found: set[str], wanted: set[str]) -> list[str]:
    """Return a line for each file that is missing in the *archive*, and for each that does not belong there."""
    missing = [f"{archive} lacks {name}" for name in sorted(wanted - found)]
    return missing + [f"{archive} has {name}, which does not belong there" for name in sorted(found - wanted)]


if __name__ == "__main__":
    sys.exit(main())
