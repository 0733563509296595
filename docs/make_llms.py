"""`python -m docs.make_llms`: writes llms.txt and llms-full.txt, for coding agents, from README, pages and docstrings.

The format is that of llmstxt.org: `llms.txt` is an index of the pages, `llms-full.txt` the text that an agent reads
alone. Both are part of the package, where `ragtrace docs --for-agents` finds the second; a site serves the same files.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import ragtrace

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "ragtrace" / "cli"
INDEX: Final = FOLDER / "llms.txt"
FULL: Final = FOLDER / "llms-full.txt"

_NAME: Final = """\
The distribution is `ragtrace-otel`, the package to import is `ragtrace`. **Never install the distribution `ragtrace`
of the package index: it is another project's.** If `import ragtrace` gives a package without `ragtrace.configure`, that
one is installed: uninstall it.
"""
_ALONE: Final = """\
This text is complete for adding ragtrace to an application: how to install it, the ten lines, the decisions, then the
reference. If `ragtrace docs --for-agents` has printed it, ragtrace is installed, in the version that the text is about.
The pages that it is made of, and further ones, are in the folder `docs/` of the source.
"""


class Part(NamedTuple):
    """Section of a page that `llms-full.txt` has, or a whole page."""

    page: str
    heading: str = ""
    """Heading of the section, which ends before the next one of its level; empty: the whole page."""
    title: str = ""
    """Heading in the text, where it differs."""
    until: str = ""
    """Beginning of the line before which the section ends, where that is not at its end."""


PARTS: Final = (
    Part("README.md", "Install", until="`make demo`"),
    Part("README.md", "Use", "The ten lines"),
    Part("docs/for-agents.md"),
    Part("docs/decorators.md", "What the decorators find without arguments"),
    Part("docs/decorators.md", "Saying where to look"),
    Part("docs/decorators.md", "Kinds of functions"),
    Part("docs/decorators.md", "Without a decorator"),
    Part("docs/decorators.md", "Content"),
    Part("docs/without-code.md", "Frameworks that ragtrace listens to"),
    Part("docs/without-code.md", "In your code", "Spans of other instrumentations", "A call begins at the topmost"),
    Part("README.md", "What you get"),
    Part("docs/reading-scores.md", "How good is the embedded judge?"),
    Part("docs/judges.md", "A language model", "A language model as judge", "Each score has attributes"),
    Part("docs/sampling-and-estimates.md", "Sampling"),
    Part("docs/judges.md", "Metrics of your own"),
    Part("README.md", "Next steps", until="Complete applications:"),
    Part("docs/providers-and-servers.md", "Servers"),
    Part("docs/configuration.md", until="The Prometheus exporter reads"),
    Part("docs/operations.md", "Statuses, outcomes and reasons"),
    Part("docs/operations.md", "Flush and shutdown"),
    Part("docs/operations.md", "Forks"),
    Part("docs/operations.md", "Errors"),
    Part("docs/metrics.md", "Reasons for a missing score", until="The judge failed"),
)
"""What `llms-full.txt` has, in its order, before the tables of metrics, commands and names."""
_OPTIONAL: Final = ("instrumentations.md", "captured.md", "compatibility.md", "releasing.md")
"""Pages that a reader with little room leaves out: recordings, and what is for maintainers."""
_DETAILED: Final = ("trace", "retrieve", "generate", "tool")
"""Names of the face whose arguments are explained one by one."""
_GIVEN: Final = frozenset({"Claim", "Judgement", "RagCall", "Score", "Unscored"})
"""Classes of the face that ragtrace constructs, and an application only reads."""
_TELLING_CHARS: Final = 70
"""Characters from which on the first sentence of a page tells what the page is about."""


def render_index() -> str:
    """Return the text of `llms.txt`: what ragtrace is, and every page with what it answers."""
    listed: dict[bool, list[str]] = {False: [], True: []}
    for page in _pages():
        listed[page.name in _OPTIONAL].append(f"- [{_title(page)}]({page.name}): {_about(page)}")
    whole = "- [All in one text](llms-full.txt): what an agent needs alone"
    return "\n".join((*_head(), "", "## Pages", "", whole, *listed[False], "", "## Optional", "", *listed[True], ""))


def render_full() -> str:
    """Return the text of `llms-full.txt`: the parts of the pages, the tables, and where the rest is."""
    lines = [*_head(), "", *_ALONE.splitlines(), ""]
    for part in PARTS:
        lines += [*_part(part), ""]
    for title, table in {"Metrics": _metrics(), "Commands": _commands(), "Public names": _names()}.items():
        lines += [f"## {title}", "", *table, ""]
    lines += ["## All pages", "", *(f"- {page.name}: {_title(page)}" for page in _pages())]
    return "\n".join((*map(str.rstrip, lines), ""))


def _head() -> Iterator[str]:
    """Yield the title, the summary and the note on the name."""
    summary = _text("README.md").partition("\n\n")[2].partition("\n\n")[0]
    yield from ("# ragtrace", "", f"> {' '.join(summary.split())}", "", *_NAME.splitlines())


def _pages() -> list[Path]:
    """Return the pages in the order of docs/index.md, without those of the API, which the table of names stands for."""
    named = re.findall(r"\]\(([\w-]+\.md)\)", _text("docs/index.md"))
    return [ROOT / "docs" / name for name in dict.fromkeys(named)]


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _about(page: Path) -> str:
    """Return the first sentence of *page*, or two if it is short; its headings if the page begins with one."""
    text = page.read_text(encoding="utf-8").partition("\n\n")[2]
    if text.startswith("#"):
        return ", ".join(_unlinked(heading) for heading in re.findall(r"^## (.*)$", text, re.MULTILINE))
    paragraph = " ".join(_unlinked(text.partition("\n\n")[0]).split())
    first, _, rest = paragraph.partition(". ")
    return first.rstrip(".:") if len(first) >= _TELLING_CHARS else f"{first}. {rest.partition('. ')[0].rstrip('.:')}"


def _part(part: Part) -> Iterator[str]:
    """Yield the lines of *part*, under a heading of the second level."""
    lines = section(part)
    headings = dict(_headings(lines))
    deeper = 3 - min((level for at, level in headings.items() if at), default=3)
    is_code = False
    for at, line in enumerate(lines):
        is_code ^= line.lstrip().startswith("```")
        if at == 0:
            yield f"## {part.title or line.lstrip('# ')}"
        elif at in headings:
            yield f"{'#' * (headings[at] + deeper)} {line.lstrip('# ')}"
        elif is_code:
            yield line
        elif not line.startswith("!["):
            yield _unlinked(line)


def section(part: Part) -> list[str]:
    """Return the lines of *part*, of which the first is its heading.

    Raises:
        ValueError: the page has no such heading, or no such end.
    """
    lines = _text(part.page).splitlines()
    headings = _headings(lines)
    start, level = next(((at, level) for at, level in headings if lines[at].lstrip("# ") == part.heading), (-1, 0))
    if part.heading and start < 0:
        raise ValueError(f"{part.page} has no heading {part.heading!r}; correct PARTS in docs/make_llms.py")
    if part.heading:
        end = next((at for at, other in headings if at > start and other <= level), len(lines))
        lines = lines[start:end]
    if part.until:
        end = next((at for at, line in enumerate(lines) if line.startswith(part.until)), 0)
        if not end:
            raise ValueError(f"{part.page} has no line {part.until!r}; correct PARTS in docs/make_llms.py")
        lines = lines[:end]
    return "\n".join(lines).rstrip().splitlines()


def _headings(lines: list[str]) -> list[tuple[int, int]]:
    """Return the places of the headings in *lines*, with the level of each; a comment in code is none."""
    found: list[tuple[int, int]] = []
    is_code = False
    for at, line in enumerate(lines):
        is_code ^= line.lstrip().startswith("```")
        if not is_code and (marks := re.match(r"#+(?= )", line)):
            found.append((at, len(marks[0])))
    return found


_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https?:)([^)]*)\)")


def _unlinked(line: str) -> str:
    """Return *line* without the targets of links into the repository, which lead nowhere from a text."""
    return _LINK.sub(r"\1", line)


def _metrics() -> Iterator[str]:
    """Yield the metrics of docs/metrics.md: a line for each that costs no further request, the names of the others."""
    costly: list[str] = []
    for name, _, better, _, calls, about in _rows(_text("docs/metrics.md"), "metric"):
        metric = _unlinked(name)
        if calls.startswith(("none", "no chat call")) and not metric.startswith("`run_"):
            yield f"- {metric} ({better} is better): {about}"
        else:
            costly.append(metric)
    said = "Only where `metrics=` names them, for further requests, with a reference or with repeated runs"
    yield f"- {said}: {', '.join(costly)}"


def _commands() -> Iterator[str]:
    for name, does in _rows(_text("docs/command-line.md"), "Command"):
        yield f"- {_unlinked(name)}: {does}"


def _rows(page: str, first: str) -> Iterator[list[str]]:
    """Yield the cells of the table whose first column is called *first*."""
    table = page.partition(f"\n| {first} |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _names() -> Iterator[str]:
    """Yield every public name of the face with its arguments and what it is, and the names of the other modules."""
    explained: set[str] = set()
    for name in ragtrace.__all__:
        value = getattr(ragtrace, name)
        arguments = "" if name in _GIVEN else _arguments(value)
        yield f"- `ragtrace.{name}{arguments}`: {_first_sentence(value)}"
        if name in _DETAILED:
            yield from _argument_docs(value, explained)
    for module in (ragtrace.judges, ragtrace.metrics, ragtrace.testing, ragtrace.types):
        names = ", ".join(f"`{name}`" for name in module.__all__ if name not in ragtrace.__all__)
        yield f"- `{module.__name__}`: {names}"


def _first_sentence(value: object) -> str:
    paragraph = (inspect.getdoc(value) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).rstrip(".")


def _argument_docs(value: object, explained: set[str]) -> Iterator[str]:
    """Yield a line for each argument of the decorator *value* that is not in *explained*, and add these to it."""
    section = (inspect.getdoc(value) or "").partition("Args:\n")[2].partition("\n\n")[0]
    lines = [" ".join(each.split()) for each in re.split(r"^    (?=\w)", section, flags=re.MULTILINE)[1:]]
    lines = [line for line in lines if not line.startswith("function: ")]
    yield from (f"  - {line}" for line in lines if line not in explained)
    if known := [line.partition(":")[0] for line in lines if line in explained]:
        yield f"  - {', '.join(known)}: as above"
    explained.update(lines)


def _arguments(value: object) -> str:
    """Return the arguments of *value*, with defaults where these are plain, such as numbers."""
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
        return ""
    written: list[str] = []
    for parameter in inspect.signature(value).parameters.values():
        is_decorated = parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is None
        if is_decorated or parameter.name.startswith("_"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in written):
            written.append("*")
        written.append(_argument(parameter))
        if parameter.kind is parameter.POSITIONAL_ONLY:
            written.append("/")
    return f"({', '.join(written)})"


def _argument(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}"
    is_plain = isinstance(parameter.default, bool | int | float | str)
    return f"{parameter.name}={parameter.default!r}" if is_plain else f"{parameter.name}="


if __name__ == "__main__":
    INDEX.write_text(render_index(), encoding="utf-8")
    FULL.write_text(render_full(), encoding="utf-8")
