"""Reading of the table of slices, `ragtrace.slices`, which a core that stands alone has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

_TABLE: Final = "ragtrace.slices"


def feature_lines() -> Mapping[str, Sequence[str]]:
    """Return where each feature's class is, as `module:class`, with the settings of which one must be given."""
    try:
        found: Mapping[str, Sequence[str]] = import_module(_TABLE).FEATURES
    except ModuleNotFoundError as error:
        if error.name != _TABLE:
            raise
        return {}
    return found


def load_class(path: str) -> Any:
    """Return the class at *path*, `module:class`."""
    module, name = path.split(":")
    return getattr(import_module(module), name)


def features_with_settings() -> Iterator[Any]:
    """Yield the classes of the features that have settings of their own; every configuration has these."""
    for path, needed_by in feature_lines().items():
        if not needed_by and (feature := load_class(path)).settings:
            yield feature
