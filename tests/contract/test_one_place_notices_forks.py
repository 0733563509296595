"""A fork is noticed in one file: elsewhere nothing is repaired in a child, and no process id is compared.

This looks for the words by which forks are noticed and repairs are called; what children do is tested in
`tests/process/test_forked_runtimes.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PLACES: Final = {
    "ragtrace/system/forks.py": {"getpid", "register_at_fork"},
    "ragtrace/fleet/spool.py": {"getpid"},  # part of the name under which a process claims calls
    "ragtrace/diagnosis/examination.py": {"getpid"},  # shown to the user
    "ragtrace/runtime/current_runtime.py": {"_leave_parents"},  # sets the parent's runtime and its own lock aside
    "ragtrace/pipeline/worker.py": {"forget_queued"},  # lets the parent's items go, whose memory a child would keep
}
WORDS: Final = re.compile(
    r"\b(getp?pid|register_at_fork)\b|def ((?:\w*_)?reset\w*|\w*after_fork\w*|forget_queued|_leave_parents)\("
)


def test_one_file_notices_a_fork() -> None:
    """With one hook; what is repaired or let go in a child has its reason in the table above."""
    found: dict[str, set[str]] = {}
    for folder in ("ragtrace", "exporters", "ragtrace_pytest"):
        for path in (ROOT / folder).rglob("*.py"):
            words = {first or second for first, second in WORDS.findall(path.read_text(encoding="utf-8"))}
            if words:
                found[path.relative_to(ROOT).as_posix()] = words
    assert found == PLACES, f"in a file that the table above does not allow: {found}"
