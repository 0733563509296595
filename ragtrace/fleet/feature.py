"""Other processes in a configuration: the fleet of `fleet=` that judges calls, and the file of `Limits(spool=)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.core.errors import SettingsError
from ragtrace.estimates import Calibrations
from ragtrace.evaluation.sampling import QueueLoad
from ragtrace.evaluation.scoring import Evaluators
from ragtrace.fleet.broker import MOST_CALLS, check_broker_url, open_broker
from ragtrace.runtime.feature import Feature, Given
from ragtrace.telemetry.export.telemetry import Telemetry

if TYPE_CHECKING:  # modules that import SQLite, which some builds of Python lack
    from ragtrace.fleet.elsewhere import OtherProcesses
    from ragtrace.fleet.publisher import FleetPublisher


class FleetFeature(Feature):
    """Fleet whose workers judge sampled calls, spool file that other processes share, or both.

    Raises:
        SettingsError: the URL of the broker is wrong, or there is a judge in this process, too.
    """

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        settings = given.settings
        if settings.fleet:
            check_broker_url(settings.fleet, settings.origins["fleet"])
            if given.judge is not None:
                raise SettingsError(
                    f"judge= and a fleet (from {settings.origins['fleet']}) are both given; give the judge to the "
                    "workers of the fleet, or leave the fleet out"
                )

    def check(self, evaluators: Evaluators, calibrations: Calibrations) -> None:
        """Check that Python has SQLite for a spool file.

        Raises:
            SettingsError: it has not.
        """
        if self.given.settings.enabled and self.given.settings.spool:
            self.given.require_sqlite("spool")

    def prepare(self, evaluators: Evaluators) -> tuple[()]:
        """Create the spool file, or check that the existing file is one.

        Raises:
            SettingsError: the file cannot be used.
        """
        settings = self.given.settings
        if settings.spool:
            from ragtrace.fleet.spool import Spool

            Spool(settings.spool).prepare(settings.origins["spool"])
        return ()

    def elsewhere(self, telemetry: Telemetry) -> OtherProcesses:
        """Return the other processes of a new runtime."""
        from ragtrace.fleet.elsewhere import OtherProcesses
        from ragtrace.fleet.spool import Spool
        from ragtrace.fleet.spooling import Spooling

        spool = self.given.settings.spool
        return OtherProcesses(self._publisher(), Spooling(Spool(spool), telemetry) if spool else None)

    def _publisher(self) -> FleetPublisher | None:
        settings = self.given.settings
        if not settings.fleet:
            return None
        from ragtrace.fleet.publisher import FleetPublisher

        return FleetPublisher(open_broker(settings.fleet), QueueLoad(MOST_CALLS), judge_turns=settings.judge_turns)
