"""How many examples hypothesis tries: all of them, or a fifth in the everyday loop."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings

ALL: Final = 100


def register_profiles() -> None:
    """Make the profiles known to `--hypothesis-profile`; load the one that tries all examples."""
    slow = [HealthCheck.too_slow]  # on a busy machine
    settings.register_profile("all", max_examples=ALL, deadline=None, suppress_health_check=slow)
    settings.register_profile("quick", max_examples=ALL // 5, deadline=None, suppress_health_check=slow)
    settings.load_profile("all")


def examples(count: int) -> int:
    """Return *count*, or the share of it that the loaded profile tries."""
    return count * settings.default.max_examples // ALL
