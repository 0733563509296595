"""Command `ragtrace exporters`, which lists exporters and kits (dashboards, rules and configurations to copy)."""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ragtrace.cli.command_options import add_command, add_json_option
from ragtrace.system.installation import DISTRIBUTION, installed_exporters
from ragtrace.system.terminal import FAILURE, OK, USAGE, print_error

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_ABOUT: Final = """\
Lists the exporters for configure(exporter=NAME) and the kits: dashboards, rules
and configurations. `show` explains one; `copy` writes the files of a kit.
"""
_README: Final = "README.md"


def register(commands: Any) -> None:
    """Add the command `ragtrace exporters` to the parser of the command line."""
    parser = add_command(
        commands,
        "exporters",
        _list,
        "where telemetry can go; dashboards and rules to copy",
        "exporters [list | show NAME | copy NAME FOLDER] [options]",
        _ABOUT,
    )
    parser.set_defaults(json=False)
    actions = parser.add_subparsers(dest="action", title="actions", metavar="ACTION [options]")
    listing = add_command(actions, "list", _list, "all exporters and kits", "exporters list [options]", _ABOUT)
    showing = add_command(actions, "show", _show, "how one is set up", "exporters show NAME [options]", _ABOUT)
    copying = add_command(
        actions, "copy", _copy, "write the files of a kit", "exporters copy KIT FOLDER [options]", _ABOUT
    )
    for action in (listing, showing, copying):
        add_json_option(action)
    for action in (showing, copying):
        action.add_argument("name", help=argparse.SUPPRESS)
    copying.add_argument("directory", type=Path, help=argparse.SUPPRESS)
    copying.add_argument("--force", action="store_true", help="replace files that are there with other content")


def _list(options: argparse.Namespace) -> int:
    exporters, kits = list(map(_describe_exporter, installed_exporters())), list(map(_describe_kit, _kits().values()))
    for each in (*exporters, *kits):
        del each["text"]
    if options.json:
        return _print_json({"exporters": exporters, "kits": kits})
    width = max(len(str(each["name"])) for each in (*exporters, *kits)) + 2
    for title, listed in (("exporters", exporters), ("kits", kits)):
        sys.stdout.write(f"{title}\n")
        sys.stdout.writelines(f"  {each['name']:<{width}}{each['summary']}\n" for each in listed)
    return OK


def _show(options: argparse.Namespace) -> int:
    exporters = [_describe_exporter(point) for point in installed_exporters() if point.name == options.name]
    kits = [_describe_kit(kit) for name, kit in _kits().items() if name == options.name]
    if not exporters and not kits:
        return _report_unknown_name(options.name)
    if options.json:
        return _print_json({"exporters": exporters, "kits": kits})
    for each in exporters:
        sys.stdout.write(f"exporter {each['name']} ({each['object']}, {each['distribution']})\n\n{each['text']}\n")
    for each in kits:
        listed = "".join(f"  {file}\n" for file in each["files"])
        sys.stdout.write(f"{'' if not exporters else chr(10)}kit {each['name']}\n{listed}\n{each['text']}")
    return OK


def _copy(options: argparse.Namespace) -> int:
    kit, directory = _kits().get(options.name), options.directory
    if kit is None:
        return _report_unknown_name(options.name, kits_alone=True)
    found = {path: file.read_bytes() for path, file in _files(kit)}
    there = {path: (directory / path).read_bytes() for path in found if (directory / path).is_file()}
    unchanged = [path for path, content in there.items() if content == found[path]]
    changed = [path for path in there if path not in unchanged]
    if changed and not options.force:
        print_error(f"{directory} has {', '.join(changed)} with other content; name another directory, or add --force")
        return FAILURE
    written = [path for path in found if path not in unchanged]
    try:
        for path in written:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(found[path])
    except OSError as error:
        print_error(f"{error.filename or directory} cannot be written: {error.strerror}; name another directory")
        return FAILURE
    if options.json:
        return _print_json(
            {"kit": options.name, "directory": str(directory), "written": written, "unchanged": unchanged}
        )
    sys.stdout.writelines(f"{directory / path}\n" for path in written)
    sys.stdout.write(f"{len(written)} written, {len(unchanged)} were there; begin with {directory / _README}\n")
    return OK


def _print_json(content: Mapping[str, object]) -> int:
    sys.stdout.write(f"{json.dumps(content)}\n")
    return OK


def _report_unknown_name(name: str, *, kits_alone: bool = False) -> int:
    known = sorted({*_kits(), *(() if kits_alone else (point.name for point in installed_exporters()))})
    print_error(f"there is no {'kit' if kits_alone else 'exporter or kit'} named {name!r}; known: {', '.join(known)}")
    return USAGE


def _describe_exporter(point: EntryPoint) -> dict[str, Any]:
    distribution = point.dist.name if point.dist else DISTRIBUTION
    about = {"name": point.name, "object": point.value, "distribution": distribution}
    try:
        made = point.load()
    except Exception as error:  # a broken exporter of another distribution must not end the list
        return {**about, "summary": f"cannot be loaded: {type(error).__name__}: {error}", "text": ""}
    module = inspect.getdoc(inspect.getmodule(made)) or ""
    text = "\n\n".join(filter(None, [module, inspect.getdoc(made) or ""]))
    # The first sentence of a module with several exporters is about all of them.
    siblings = sum(other.module == point.module for other in installed_exporters()) > 1
    paragraph = ((inspect.getdoc(made) if siblings else "") or module or text).strip().partition("\n\n")[0]
    return {**about, "summary": " ".join(paragraph.split()), "text": text}


def _kits() -> dict[str, Traversable]:
    folder = files("ragtrace_exporters") / "kits"
    kits = [entry for entry in folder.iterdir() if entry.is_dir() and (entry / _README).is_file()]
    return {kit.name: kit for kit in sorted(kits, key=lambda kit: kit.name)}


def _describe_kit(kit: Traversable) -> dict[str, Any]:
    text = (kit / _README).read_text(encoding="utf-8")
    return {
        "name": kit.name,
        "summary": text.partition("\n")[0].lstrip("# "),
        "files": [path for path, _ in _files(kit)],
        "text": text,
    }


def _files(folder: Traversable, under: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_file():
            yield f"{under}{entry.name}", entry
        elif entry.name != "__pycache__":
            yield from _files(entry, f"{under}{entry.name}/")
