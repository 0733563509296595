"""Write the generated files of the kits."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from exporters.make_kits import dashboard, rule_tests, rules

KITS: Final = Path(__file__).parents[1] / "ragtrace_exporters" / "kits"
_HEAD: Final = "# Made by `python -m exporters.make_kits` in the sources of ragtrace"


def made() -> dict[str, str]:
    """Return the text of every generated file, by its path in the kits."""
    found = {f"prometheus/{name}": _yaml({"groups": groups}) for name, groups in rules.files().items()}
    found["prometheus/tests.yml"] = _yaml(rule_tests.alert_tests())
    found["prometheus/records.tests.yml"] = _yaml(rule_tests.record_tests())
    found["grafana/ragtrace-dashboard.json"] = dashboard.text_of()
    return found


def _yaml(content: Any) -> str:
    return f"{_HEAD}.\n" + yaml.safe_dump(content, sort_keys=False, width=118, allow_unicode=True)


if __name__ == "__main__":
    for name, text in made().items():
        (KITS / name).parent.mkdir(parents=True, exist_ok=True)
        (KITS / name).write_text(text, encoding="utf-8")
