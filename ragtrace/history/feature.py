"""The history in a configuration: the file of `store=`, and what records into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragtrace.core.contents import may_leave
from ragtrace.estimates import Calibrations
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.history.source import CallOrigin
from ragtrace.runtime.feature import Feature

if TYPE_CHECKING:
    from ragtrace.history.history import HistoryRecorder


class HistoryFeature(Feature):
    """History that keeps every call with its scores."""

    def check(self, evaluators: Evaluators, calibrations: Calibrations) -> None:
        """Check that Python has SQLite.

        Raises:
            SettingsError: it has not.
        """
        if self.given.settings.enabled:
            self.given.require_sqlite("store")

    def prepare(self, evaluators: Evaluators) -> tuple[()]:
        """Create the file, or check that the existing file is a history.

        Raises:
            SettingsError: the file cannot be used.
        """
        self._recorder(CallOrigin()).prepare(self.given.settings.origins["store"])
        return ()

    def stores(self, evaluators: Evaluators, service: str, release: str) -> Iterator[HistoryRecorder]:
        """Return what records the calls of a runtime."""
        yield self._recorder(CallOrigin.from_evaluators(evaluators, service=service, release=release))

    def _recorder(self, origin: CallOrigin) -> HistoryRecorder:
        from ragtrace.history.history import HistoryRecorder  # here, as there are builds of Python without SQLite

        settings = self.given.settings
        return HistoryRecorder(
            settings.store,
            origin,
            days=settings.store_days,
            most_bytes=settings.store_bytes,
            texts=may_leave(settings.capture_content, "elsewhere"),
        )
